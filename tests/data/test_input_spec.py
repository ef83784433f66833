"""InputSpec: examples and rows of one input."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pluribus.data.input_spec import TYPES, InputSpec
from pluribus.errors import InputError


@pytest.mark.parametrize("dtype", TYPES)
def test_examples_have_the_shape_and_type_of_the_input(dtype):
    spec = InputSpec.of("a", torch.zeros(5, 3, 2, dtype=TYPES[dtype]))
    assert (spec.shape, spec.dtype) == ((3, 2), dtype)
    example = spec.example(4)
    assert (tuple(example.shape), example.dtype) == ((4, 3, 2), TYPES[dtype])
    if not example.is_floating_point():
        assert (example == 1).all()


def test_rows_of_a_file_become_the_type_of_the_input():
    spec = InputSpec("a", (8,), "int64")
    assert spec.read(Path("f.npz"), np.zeros((2, 5), np.int32)).dtype == torch.int64
    with pytest.raises(InputError, match=r"a of f.npz must hold numbers with 2 axes"):
        spec.read(Path("f.npz"), np.zeros(2))
