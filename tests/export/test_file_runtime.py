"""Runtimes that read a file are refused by name where they cannot run."""

import pytest
import torch

import pluribus as pl
from pluribus.export.file_runtime import FileRuntime
from pluribus.export.onnx import Onnx
from pluribus.export.openvino import OpenVino


class Missing(Onnx):
    packages = ("json", "no_such_package")


def test_missing_packages_are_named_with_the_line_that_installs_them():
    with pytest.raises(pl.ExportError, match=r"engine 'onnxruntime' needs .*, got no no_such_package.*pip"):
        FileRuntime("onnxruntime", Missing()).check(torch.device("cpu"))


def test_other_devices_are_refused_with_the_remedy():
    with pytest.raises(pl.ExportError, match=r"on the CPU, got one on meta. Use frozen.cpu\(\)"):
        FileRuntime("onnxruntime", Onnx()).check(torch.device("meta"))


def test_the_tolerance_is_that_of_the_format():
    assert FileRuntime("openvino", OpenVino()).tolerance == OpenVino().tolerance
