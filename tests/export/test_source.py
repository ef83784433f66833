"""A source names the inputs of the file by the parameters of the network's forward."""

from dataclasses import replace

import pytest
import torch

import pluribus as pl
from pluribus.mechanisms.network.inputs import Inputs
from tests.export.sources import linear_source


def test_inputs_are_named_by_the_parameters_of_forward():
    source = replace(
        linear_source(),
        forward=lambda image, age, *, scale=1: None,
        example=Inputs((torch.zeros(2, 4), torch.zeros(2, 1)), {"scale": 2}),
    )
    assert source.input_names() == ["image", "age", "scale"]
    assert source.tensor_names() == ["image", "age"]


def test_inputs_of_a_variable_number_are_numbered():
    source = replace(
        linear_source(), forward=lambda *parts: None, example=Inputs((torch.zeros(2), torch.zeros(2)), {})
    )
    assert source.input_names() == ["parts_0", "parts_1"]


def test_nested_inputs_are_refused_by_name():
    source = replace(linear_source(), example=Inputs(([torch.zeros(2)],), {}))
    with pytest.raises(pl.ExportError, match="input image must be a tensor or a plain value, got list"):
        source.input_names()
