"""Batches: inputs, targets and weights are told apart in every form that a dataset packs them in."""

import pytest
import torch

from pluribus.data.batch import Batch, Names
from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs

A, B, Y, W = torch.zeros(3, 2), torch.ones(3, 5), torch.tensor([0, 1, 0]), torch.tensor([1.0, 0.0, 2.0])


@pytest.mark.parametrize(
    ("raw", "args", "names"),
    [
        ((A, Y), 1, []),
        ([A, Y], 1, []),
        ((A, B, Y), 2, []),
        (((A, B), Y), 2, []),
        ([[A, B], Y], 2, []),
        (({"a": A, "b": B}, Y), 0, ["a", "b"]),
        ({"a": A, "b": B, "label": Y}, 0, ["a", "b"]),
        ({"a": A, "labels": Y, "text": ["x", "y", "z"]}, 0, ["a", "text"]),
    ],
)
def test_unpack_finds_inputs_and_target(raw, args, names):
    batch = Names().unpack(raw)
    assert (len(batch.inputs.args), sorted(batch.inputs.keywords)) == (args, names)
    assert batch.target is Y
    assert len(batch) == 3


def test_unpack_takes_the_named_target_and_the_weights():
    batch = Names(target="grade").unpack({"x": A, "label": B, "grade": Y, "sample_weight": W})
    assert batch.y is Y
    assert batch.weights is W
    assert sorted(batch.inputs.keywords) == ["label", "x"]


def test_samples_without_a_target_are_refused_where_one_is_needed():
    batch = Names().unpack(A)
    assert batch.y is None
    with pytest.raises(InputError, match=r"samples must have a target, got \(float32\[3, 2\]\) alone"):
        _ = batch.target
    with pytest.raises(InputError, match="must have the entry 'grade', got x"):
        Names(target="grade").unpack({"x": A})
    with pytest.raises(InputError, match="tensors, tuples or dicts, got str"):
        Names().unpack("words")


def test_take_cuts_all_parts():
    part = Batch(Inputs.of({"a": A, "b": B}), Y, W).take(slice(1, 3))
    assert (len(part), part.target.tolist()) == (2, [1, 0])
    assert part.weights.tolist() == [0.0, 2.0]
    assert part.x["b"].shape == (2, 5)
