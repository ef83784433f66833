"""Check tensors of a file against a network: names, shapes, types and values."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from pluribus.errors import CheckpointError
from pluribus.untrusted import Stored

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "C64": torch.complex64,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
"""Torch's names for the types in a header of safetensors."""
EXACT = {
    torch.float16: {torch.float32, torch.float64},
    torch.bfloat16: {torch.float32, torch.float64},
    torch.float32: {torch.float64},
    torch.complex64: {torch.complex128},
}
"""The types into which each type goes without loss."""


def stored(tensors: Mapping[str, Tensor]) -> dict[str, Stored]:
    """Return types and shapes of tensors in the form of a file's header."""
    words = {dtype: word for word, dtype in DTYPES.items()}
    found = {}
    for name, tensor in tensors.items():
        # A type without a name in safetensors cannot be saved, but can be named in a message.
        word = words.get(tensor.dtype, str(tensor.dtype))
        found[name] = Stored(word, tuple(tensor.shape))
    return found


def check_shapes(
    expected: Mapping[str, Tensor], came: Mapping[str, Tensor] | Mapping[str, Stored], path: str | Path
) -> None:
    """Raise `CheckpointError` unless a file has the names and shapes of a network."""
    wanted = {name: tuple(tensor.shape) for name, tensor in expected.items()}
    found = {name: tuple(tensor.shape) for name, tensor in came.items()}
    names = sorted(wanted.keys() | found.keys())
    odd = [name for name in names if wanted.get(name) != found.get(name)]
    if odd:
        # Three are enough to see a pattern; another network may differ in hundreds.
        shown = ", ".join(f"{name} {wanted.get(name)} and {found.get(name)}" for name in odd[:3])
        raise CheckpointError(
            f"{path} must fit the network, got {len(odd)} tensors that differ, expected and saved: {shown}. "
            "Give the network that was saved."
        )


def check_saved_types(expected: Mapping[str, Tensor], came: Mapping[str, Tensor], path: str | Path) -> None:
    """Raise `CheckpointError` unless types are those of the network, or those after `half()`."""
    # After `half()` or `double()` all floats have one type, which need not be that of the network.
    floats = {tensor.dtype for tensor in came.values() if tensor.is_floating_point()}
    for name, tensor in came.items():
        wanted = expected[name].dtype
        moved = wanted.is_floating_point and tensor.is_floating_point() and len(floats) == 1
        if tensor.dtype != wanted and not moved:
            raise _wrong_type(name, wanted, tensor.dtype, path)


def check_exact_types(expected: Mapping[str, Tensor], came: Mapping[str, Tensor], path: str | Path) -> None:
    """Raise `CheckpointError` if a value would lose precision or its imaginary part in the network's type."""
    for name, tensor in came.items():
        wanted = expected[name].dtype
        if tensor.dtype != wanted and wanted not in EXACT.get(tensor.dtype, ()):
            raise _wrong_type(name, wanted, tensor.dtype, path)


def check_values(came: Mapping[str, Tensor], parameters: Iterable[str], path: str | Path) -> None:
    """Raise `CheckpointError` for NaN in any tensor, and for infinity in a parameter."""
    weights = set(parameters)
    for name, tensor in came.items():
        if not tensor.is_floating_point() and not tensor.is_complex():
            continue
        wrong = torch.isnan(tensor)
        # Buffers may hold infinity: masks of attention do.
        if name in weights:
            wrong = ~torch.isfinite(tensor)
        if wrong.any():
            raise CheckpointError(
                f"{path} must hold finite weights, got {int(wrong.sum())} of {wrong.numel()} numbers of "
                f"{name} that are NaN or infinite. Train again with a lower learning rate."
            )


def _wrong_type(name: str, wanted: torch.dtype, came: torch.dtype, path: str | Path) -> CheckpointError:
    return CheckpointError(
        f"{path} must have {name} of type {wanted}, as the network has it, got {came}. "
        "Convert the weights, or the network with network.to(dtype), on purpose."
    )
