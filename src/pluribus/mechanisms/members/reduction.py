"""Reduction: how a method makes one training objective of the members' losses.

Members that share no trained tensor are separate trainings in one step. The gradient of the *sum* of
their losses is, in every member's tensors, the gradient of that member alone; the mean divides it by M,
which is a learning rate of lr / M for SGD and M times the decay for Adam with L2. Members that share
trained tensors train the mean, so that the shared gradient has the scale of one network's.
"""

from torch import Tensor

from pluribus.mechanisms.members.prior import AnyMembers

REDUCTIONS = ("auto", "sum", "mean")
"""Values of a method's setting `reduction`."""


def shares_nothing(members: AnyMembers) -> bool:
    """Return whether no tensor that is trained belongs to several members."""
    return not any(parameter.requires_grad for parameter in members.tensors.shared.parameters())


def is_sum(reduction: str, members: AnyMembers) -> bool:
    """Return whether losses are summed: `auto` sums where members share nothing."""
    return shares_nothing(members) if reduction == "auto" else reduction == "sum"


def trains_apart(reduction: str, members: AnyMembers) -> bool:
    """Return whether the sum is trained, and members share nothing: each trains as if it were alone."""
    return is_sum(reduction, members) and shares_nothing(members)


def reduce_losses(losses: Tensor, shares: Tensor, reduction: str, members: AnyMembers) -> Tensor:
    """Return the objective of losses `[members]` that count by shares `[members]`, a scalar.

    In eval mode it is always the mean, which compares with the loss of one network.
    """
    if members.training and is_sum(reduction, members):
        return losses.sum()
    return (losses * shares).sum()
