"""Packages that are missing are named with the line that installs them."""

import json

import pytest

import pluribus as pl
from pluribus.export.packages import load_packages


def test_installed_packages_are_returned():
    assert load_packages("onnx", ("json",), "export") == [json]


def test_missing_packages_are_named_with_their_install_line():
    with pytest.raises(pl.ExportError, match="got no no_such_thing and no nor_this") as raised:
        load_packages("onnx", ("json", "no_such_thing", "nor_this"), "export")
    assert "pip install 'pluribus[export]'" in str(raised.value)
