"""InputSpec: name, shape and type of one input of a network with several."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from pluribus.errors import InputError

TYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
    "uint8": torch.uint8,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}
"""Types of inputs by name; a file names one of these and nothing else."""


@dataclass(frozen=True)
class InputSpec:
    """One input of a network.

    Args:
        key: Its name: that of a keyword, or `x0`, `x1` for positional ones.
        shape: Of one sample, as it was in training; axes that vary may have another size.
        dtype: Name of its type.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, key: str, tensor: Tensor) -> "InputSpec":
        """Return the description of a batch's input."""
        return cls(key, tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch."))

    def example(self, count: int) -> Tensor:
        """Return standard normal numbers, or ones: a token of any vocabulary, and true in a mask."""
        kind = TYPES[self.dtype]
        if not kind.is_floating_point:
            return torch.ones(count, *self.shape, dtype=kind)
        return torch.randn(count, *self.shape, generator=Generator().manual_seed(0)).to(kind)

    def read(self, source: Path | str, values: np.ndarray[Any, Any]) -> Tensor:
        """Return rows of some source as a tensor of this input; raise where they have other axes."""
        if values.dtype.kind not in "biuf" or values.ndim != len(self.shape) + 1:
            raise InputError(
                f"{self.key} of {source} must hold numbers with {len(self.shape) + 1} axes, "
                f"got {values.dtype} of shape {list(values.shape)}."
            )
        return torch.from_numpy(np.ascontiguousarray(values)).to(TYPES[self.dtype])
