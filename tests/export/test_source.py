"""A source gives the tensors of a call the names of the file's inputs."""

from dataclasses import replace

import torch

from pluribus.mechanisms.network.inputs import Inputs
from tests.export.sources import linear_source


def test_tensors_have_the_names_of_the_inputs_in_their_order():
    example = Inputs((), {"age": torch.zeros(2, 1), "image": torch.ones(2, 4), "scale": 3})
    source = replace(
        linear_source(),
        names=("image", "age"),
        select=lambda inputs: [inputs.keywords["image"], inputs.keywords["age"]],
    )
    assert list(source.tensors(example)) == ["image", "age"]
    assert source.tensors(example)["age"].shape == (2, 1)
