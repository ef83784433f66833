"""Tensors of an exported file, and their types: the names of NumPy, ONNX and the Open Inference Protocol."""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

MEMBERS = "members"
"""The output whose first axis is that of members; all others begin with the batch."""

PROTOCOL = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}
"""By name in NumPy, the name in the protocol. Others, as bfloat16, have no counterpart in NumPy."""
ONNX = {f"tensor({name})": name for name in PROTOCOL} | {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
}
"""By name in onnxruntime, the name in NumPy."""


def little_endian(name: str) -> np.dtype[np.generic]:
    """Return the type of binary data in the protocol: little-endian on every machine."""
    return np.dtype(name).newbyteorder("<")


@dataclass(frozen=True)
class Input:
    """One input of the file.

    Attributes:
        name: Of the tensor.
        dtype: Its type in NumPy.
        shape: Of one sample; an axis whose size may vary has its name.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
