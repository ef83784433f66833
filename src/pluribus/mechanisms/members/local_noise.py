"""Weights that are Gaussian, whose noise is drawn where it arrives: in the outputs of a layer.

Kingma, Salimans & Welling, "Variational dropout and the local reparameterization trick", NeurIPS 2015. A
linear layer with independent Gaussian weights has Gaussian outputs,

    y = x Wᵀ + b,  W ~ N(M, S²),  b ~ N(m, s²)    →    y ~ N(x Mᵀ + m, x² (S²)ᵀ + s²)       (1)

so that each sample can have draws of its own at the cost of a second product, and gradients vary less.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pluribus.errors import InputError
from pluribus.mechanisms.network.torch_private import without_subclass_rules

# Keeps the slope of the root finite where a sample is zero.
FLOOR = 1e-12


class LocalNoise(Tensor):
    """Hold the mean of a Gaussian parameter; linear layers and convolutions draw their outputs with it."""

    deviation: Tensor

    @classmethod
    def of(cls, mean: Tensor, deviation: Tensor) -> "LocalNoise":
        """Return a parameter with that mean and standard deviation, of the same shape."""
        parameter = mean.as_subclass(cls)
        parameter.deviation = deviation
        return parameter

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # Attributes, as its shape and its precision, come as functions too.
        if getattr(func, "__name__", "") == "__get__":
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]
        # A function without a rule would use the mean alone, and be silently sure.
        if func not in RULES:
            name = getattr(func, "__name__", str(func))
            raise InputError(f"{name} has no rule for outputs of Gaussian parameters.")
        with without_subclass_rules():
            return RULES[func](*args, **kwargs or {})


def _drawn(
    function: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *settings: Any,
    **named: Any,
) -> Tensor:
    """Draw the outputs of a layer that is linear in its weight, Eq. (1)."""
    mean = function(input, weight, bias, *settings, **named)
    squares = _squared_deviation(weight)
    of_bias = None if bias is None else _squared_deviation(bias)
    variance = function(input.square(), squares, of_bias, *settings, **named)
    return mean + variance.clamp(min=FLOOR).sqrt() * torch.randn_like(mean)


def _squared_deviation(parameter: Tensor) -> Tensor:
    """Return the variance of a parameter; zero where it is an ordinary one."""
    if isinstance(parameter, LocalNoise):
        return parameter.deviation.square()
    return torch.zeros_like(parameter)


RULES: dict[Callable[..., Any], Callable[..., Tensor]] = {
    one: partial(_drawn, one)
    for one in (
        *(F.linear, F.conv1d, F.conv2d, F.conv3d),
        *(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d),
    )
}
"""By function of torch, the function that draws its outputs."""
