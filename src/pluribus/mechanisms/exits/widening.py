"""Widening: first layers that read several inputs at once, and last layers with outputs for each of them.

The weight of a widened first layer holds that of every slot, each divided by the number of slots. So the
same input in all slots gives what the layer computed before.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pluribus.mechanisms.network.torch_private import parameter_table

# The weights that multiply the input of a recurrent layer; the other direction has the suffix `_reverse`.
RECURRENT_INPUT = "weight_ih_l0"
SOURCE, INNER, NORM = "source", "inner", "norm"
"""Roles of the layers that make the output, see `output_tail.py`."""
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


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


def widen_output(layer: nn.Module, role: str, slots: int) -> None:
    """Repeat a layer that makes the output for every slot; each slot computes what the layer did."""
    _resize(layer, role, [0] * slots, 1)


def keep_output(layer: nn.Module, role: str, rows: Sequence[int], slots: int) -> None:
    """Keep some slots of such a layer, in this order."""
    _resize(layer, role, rows, slots)


def _resize(layer: nn.Module, role: str, rows: Sequence[int], slots: int) -> None:
    """Let a layer for `slots` slots compute these of them."""
    if role == NORM:
        layer.num_features = layer.num_features // slots * len(rows)  # type: ignore[assignment,operator]
        return
    groups = getattr(layer, "groups", 1)
    for name in ("weight", "bias"):
        tensor = getattr(layer, name)
        if tensor is not None:
            kept = _picked(tensor, _output_axis(layer, name, role), rows, slots)
            setattr(layer, name, nn.Parameter(kept, tensor.requires_grad))
    outputs, inputs = (
        ("out_features", "") if isinstance(layer, nn.Linear) else ("out_channels", "in_channels")
    )
    setattr(layer, outputs, getattr(layer, outputs) // slots * len(rows))
    if role == INNER:
        setattr(layer, inputs, getattr(layer, inputs) // slots * len(rows))
        layer.groups = groups // slots * len(rows)  # type: ignore[assignment]


def _output_axis(layer: nn.Module, name: str, role: str) -> int:
    """Return the axis of a tensor along which slots lie."""
    # The weight of a transposed convolution is [inputs, outputs of a group, ...].
    transposed = isinstance(layer, TRANSPOSED) and name == "weight" and role == SOURCE
    return 1 if transposed else 0


@torch.no_grad()
def _picked(tensor: torch.Tensor, axis: int, rows: Sequence[int], slots: int) -> torch.Tensor:
    parts = torch.unflatten(tensor, axis, (slots, -1))
    index = torch.tensor(list(rows), device=tensor.device)
    return parts.index_select(axis, index).flatten(axis, axis + 1).clone()


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
