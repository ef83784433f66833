"""Types of tensors have one name in each world."""

import numpy as np

from pluribus.serving.tensors import ONNX, PROTOCOL, little_endian


def test_names_belong_together():
    assert PROTOCOL["float32"] == "FP32"
    assert ONNX["tensor(float)"] == "float32"
    assert ONNX["tensor(int64)"] == "int64"
    assert set(ONNX.values()) == set(PROTOCOL)


def test_binary_data_is_little_endian():
    assert np.array([1], little_endian("int32")).tobytes() == b"\x01\x00\x00\x00"
