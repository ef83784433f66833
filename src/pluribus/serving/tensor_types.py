"""Types of tensors: the names of NumPy, of ONNX and of the Open Inference Protocol."""

import numpy as np

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
