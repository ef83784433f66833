"""Packing: tensors of a file in as few bytes as their values need."""

import torch
from torch import Tensor

FEWEST_BITS = 64
"""Numbers from which a mask is stored as bits: below, its two values are larger than what is saved."""
MASKS = (torch.bool, torch.uint8)
"""Types of masks besides real numbers; other whole numbers are sizes and positions, which are few."""


def two_values(tensor: Tensor) -> tuple[float, ...]:
    """Return the two values of a mask; none for a tensor that has more, or is small."""
    if not (tensor.is_floating_point() or tensor.dtype in MASKS) or tensor.numel() < FEWEST_BITS:
        return ()
    low, high = float(tensor.min()), float(tensor.max())
    has_two = bool(((tensor == low) | (tensor == high)).all())
    return (low, high) if has_two else ()


def fits_byte(tensor: Tensor) -> bool:
    """Return whether all numbers are whole ones that fit into a byte."""
    if tensor.dtype in MASKS:
        return True
    if tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
        return False
    return int(tensor.min()) >= 0 and int(tensor.max()) < 256


def packed_bytes(tensor: Tensor) -> int:
    """Return how many bytes a tensor takes in a file."""
    narrow = tensor.byte() if fits_byte(tensor) and tensor.dtype is not torch.bool else tensor
    return -(-tensor.numel() // 8) if two_values(narrow) else narrow.nbytes
