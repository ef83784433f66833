"""Widening: first layers that read several inputs at once, and last layers with outputs for each of them.

The weight of a widened first layer holds that of every slot, each divided by the number of slots. So the
same input in all slots gives what the layer computed before.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pluribus.mechanisms.network.torch_private import parameter_table

# The weights that multiply the input of a recurrent layer; the other direction has the suffix `_reverse`.
RECURRENT_INPUT = "weight_ih_l0"


def widen_first(layer: nn.Module, slots: int) -> None:
    """Make a layer read `slots` inputs; the same input in every slot gives what it computed before."""
    if isinstance(layer, nn.Embedding):
        layer.num_embeddings *= slots
        _replace(layer, "weight", lambda weight: (weight / slots).repeat(slots, 1))
        return
    size = _input_size(layer)
    setattr(layer, size, slots * getattr(layer, size))
    for name in _input_weights(layer):
        _replace(layer, name, lambda weight: torch.cat([weight / slots] * slots, dim=1))


def merge_first(layer: nn.Module, slots: int) -> None:
    """Make a widened layer read one input, and compute what it did with that input in all of its slots."""
    if isinstance(layer, nn.Embedding):
        layer.num_embeddings //= slots
        _replace(layer, "weight", lambda weight: _merged_table(weight, slots, layer.padding_idx))
        return
    size = _input_size(layer)
    setattr(layer, size, getattr(layer, size) // slots)
    for name in _input_weights(layer):
        _replace(layer, name, lambda weight: torch.unflatten(weight, 1, (slots, -1)).sum(1))


def widen_last(layer: nn.Module, slots: int) -> None:
    """Make a layer compute its outputs for every slot, one slot after the other."""
    name = "out_features" if isinstance(layer, nn.Linear) else "out_channels"
    setattr(layer, name, slots * getattr(layer, name))
    for tensor in ("weight", "bias"):
        if getattr(layer, tensor) is not None:
            _replace(layer, tensor, lambda value: torch.cat([value] * slots))


def _input_size(layer: nn.Module) -> str:
    """Return the attribute that holds the number of features a layer reads."""
    if isinstance(layer, nn.RNNBase):
        return "input_size"
    return "in_features" if isinstance(layer, nn.Linear) else "in_channels"


def _input_weights(layer: nn.Module) -> list[str]:
    """Return the names of the weights that multiply a layer's input."""
    return [name for name in parameter_table(layer) if name == "weight" or name.startswith(RECURRENT_INPUT)]


def _merged_table(weight: Tensor, slots: int, padding: int | None) -> Tensor:
    """Return an embedding's table with the rows of all slots added."""
    merged = torch.unflatten(weight, 0, (slots, -1)).sum(0)
    if padding is not None:
        # All slots read the padding row of the first.
        merged[padding] = slots * weight[padding]
    return merged


def _replace(layer: nn.Module, name: str, change: Callable[[Tensor], Tensor]) -> None:
    """Replace a parameter of a layer by what a function makes of it."""
    old = getattr(layer, name)
    with torch.no_grad():
        setattr(layer, name, nn.Parameter(change(old).contiguous(), old.requires_grad))
