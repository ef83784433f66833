"""Clip gradients: all together, or those of each member if members share nothing."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pluribus.ensemble import Ensemble

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from pluribus.training.one_cpu import OneCPU

SMALL = 1e-6
"""Added to norms, as `torch.nn.utils.clip_grad_norm_` does: a gradient of zero stays zero."""


def clip_gradients(
    ensemble: Ensemble, max_norm: float, model: Any, optimizer: Any, fabric: "Fabric | OneCPU"
) -> None:
    """Scale gradients in place so that no training has a gradient with a norm above `max_norm`.

    Args:
        ensemble: The ensemble that is trained.
        max_norm: The greatest norm.
        model: The ensemble as `fabric.setup` returned it.
        optimizer: The optimizer as `fabric.setup` returned it.
        fabric: Undoes the scaling of gradients in half precision.
    """
    separate = ensemble.method.is_separate(ensemble.members)
    # An infinite norm clips nothing, and still undoes the scaling of half precision.
    fabric.clip_gradients(model, optimizer, max_norm=torch.inf if separate else max_norm)
    if separate:
        clip_members(ensemble, max_norm)


def clip_members(ensemble: Ensemble, max_norm: float) -> None:
    """Clip the gradient of each member by its own norm, as M separate trainings would."""
    parameters = [one for one in ensemble.members.tensors.own.parameters() if one.grad is not None]
    if not parameters:
        return
    factors = (max_norm / (member_norms(parameters) + SMALL)).clamp(max=1)
    for parameter in parameters:
        shape = (-1, *[1] * (parameter.ndim - 1))
        parameter.grad.mul_(factors.to(parameter.grad).view(shape))  # type: ignore[union-attr]


def member_norms(parameters: list[torch.nn.Parameter]) -> Tensor:
    """Return the norm of each member's gradient, `[members]`, of parameters `[members, ...]`."""
    squares = []
    for parameter in parameters:
        assert parameter.grad is not None
        gradient = parameter.grad.flatten(1) if parameter.ndim > 1 else parameter.grad.unsqueeze(1)
        squares.append(torch.linalg.vector_norm(gradient, dim=1).square())
    return torch.stack(squares).sum(0).sqrt()
