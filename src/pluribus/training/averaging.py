"""The running mean of the weights, which often predicts better than the last weights.

    mean ← decay · mean + (1 − decay) · weights        after every step

Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992; the exponential form is
that of Tarvainen and Valpola, 2017. Parameters are averaged, buffers are those of the last step, as in
`torch.optim.swa_utils.AveragedModel`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def decay_at(step: int, decay: float) -> float:
    """Return the decay of a step, counted from 0."""
    # A mean of few steps is short, so that it soon forgets the initial weights.
    return min(decay, (1 + step) / (10 + step))


def start_mean(module: nn.Module) -> dict[str, Tensor]:
    """Return a copy of the trained parameters, by name."""
    trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
    return {name: one.detach().clone() for name, one in trained.items()}


@torch.no_grad()
def update_mean(mean: Mapping[str, Tensor], module: nn.Module, step: int, decay: float) -> None:
    """Move the mean towards the present weights, in place."""
    parameters = dict(module.named_parameters())
    for name, value in mean.items():
        value.lerp_(parameters[name].detach(), 1 - decay_at(step, decay))


@contextmanager
def averaged(module: nn.Module, mean: Mapping[str, Tensor]) -> Iterator[None]:
    """Give the module the mean weights inside the context, and its own again afterwards."""
    own = {name: one.detach().clone() for name, one in module.named_parameters() if name in mean}
    set_weights(module, mean)
    try:
        yield
    finally:
        set_weights(module, own)


@torch.no_grad()
def set_weights(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into the module's parameters of the same names."""
    parameters = dict(module.named_parameters())
    for name, value in weights.items():
        parameters[name].copy_(value)
