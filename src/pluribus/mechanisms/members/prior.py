"""Priors: a fixed random network of its own that is added to every member.

f_m(x) = f(x; θ_m) + β f(x; φ_m),    φ_m drawn once, no gradient
"""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.code import Code
from pluribus.mechanisms.members.index import Index, Row
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import BatchNorm

FEWEST = 2
"""Samples that a batch must have for statistics."""
COUNTER = "num_batches_tracked"
"""The name of the counter of batches in BatchNorm."""


class WithPrior(nn.Module):
    """Members to each of which the same row of fixed members is added.

    Args:
        learnt: The members.
        prior: The fixed ones, without gradients and always in eval mode.
        scale: The factor of their outputs.
    """

    def __init__(self, learnt: Members, prior: Members, scale: float) -> None:
        super().__init__()
        # This order is that of the parameters, by which optimizers know them.
        self.learnt, self.prior, self.scale = learnt, prior.requires_grad_(False).eval(), scale

    @property
    def index(self) -> Index:
        """Which members there are."""
        return self.learnt.index

    @property
    def tensors(self) -> Tensors:
        """The tensors of the learnt members."""
        return self.learnt.tensors

    @property
    def code(self) -> Code:
        """How the user's code runs."""
        return self.learnt.code

    @property
    def count(self) -> int:
        """The number of rows of eval mode."""
        return self.learnt.count

    def train(self, mode: bool = True) -> Self:
        """Put the learnt members into train or eval mode; prior networks stay in eval mode."""
        self.learnt.train(mode)
        self.training = mode
        return self

    def keep(self, positions: Sequence[int]) -> "WithPrior":
        """Return some rows of eval mode alone, in this order."""
        small = WithPrior(self.learnt.keep(positions), self.prior.keep(positions), self.scale)
        small.training = self.training
        return small

    def is_unsettled(self) -> bool:
        """Return whether the prior networks have BatchNorm statistics and none of them has seen a batch."""
        module = self.prior.code.caller.module
        if not any(
            isinstance(layer, BatchNorm) and layer.running_mean is not None for layer in module.modules()
        ):
            return False
        shared, own = self.prior.tensors.parts()
        counts = [{**shared, **own}[name] for name, _ in module.named_buffers() if name.endswith(COUNTER)]
        return bool(counts) and not any(bool(count.any()) for count in counts)

    @torch.no_grad()
    def settle(self, inputs: Inputs) -> None:
        """Set the statistics of all prior networks to those of one batch of at least two samples."""
        if inputs.batch < FEWEST:
            return
        tensors, caller = self.prior.tensors, self.prior.code.caller
        for row in tensors.covering_rows(self.prior.index.rows(training=False)):
            values = tensors.of_one(row)
            network = materialise(caller.module, values).eval()
            for layer in network.modules():
                if isinstance(layer, BatchNorm):
                    layer.training = True
                    layer.momentum = None  # the average over all batches: rows that share it count alike
            caller.call_module(network, inputs)
            for name, buffer in network.named_buffers():
                if name in values:
                    values[name].copy_(buffer)

    def as_module(self, row: Row) -> nn.Module:
        """Return one row as a plain module in eval mode with copies of its tensors."""
        return Sum(self.learnt.as_module(row), self.prior.as_module(row), self.scale).eval()


AnyMembers = Members | WithPrior


class Sum(nn.Module):
    """A network to which a fixed one is added.

    Args:
        network: The member.
        prior: The fixed network.
        scale: The factor of its output.
    """

    def __init__(self, network: nn.Module, prior: nn.Module, scale: float) -> None:
        super().__init__()
        self.network, self.prior, self.scale = network, prior, scale

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the member's prediction, `[batch, ...]`."""
        copied = Inputs(args, kwargs).copy()  # the network may write into what it is given
        outputs: Tensor = self.network(*args, **kwargs)
        with torch.no_grad():
            prior: Tensor = self.prior(*copied.args, **copied.keywords)
        return outputs + self.scale * prior
