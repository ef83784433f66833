"""Settle parametrisations: those that estimate something of a weight see the weight that there is now."""

from torch import nn
from torch.nn.utils.parametrize import is_parametrized

# As many as torch runs when spectral_norm is put on a layer (2.13).
POWER_ITERATIONS = 15


def settle_parametrizations(module: nn.Module) -> None:
    """Run the parametrisations of all layers in train mode, where `spectral_norm` estimates the norm."""
    for layer in module.modules():
        if is_parametrized(layer):
            _settle(layer)


def _settle(layer: nn.Module) -> None:
    modes = {part: part.training for part in layer.modules()}
    layer.train()
    for _ in range(POWER_ITERATIONS):
        for name in layer.parametrizations:  # type: ignore[union-attr]
            getattr(layer, name)
    for part, mode in modes.items():
        part.training = mode
