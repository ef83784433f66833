"""Fresh inputs have the shapes, types and ranges of the example."""

import torch

from pluribus.export.fresh_inputs import fresh_inputs, resized
from pluribus.mechanisms.network.inputs import Inputs


def test_numbers_have_the_mean_and_spread_of_the_example():
    example = Inputs.of(torch.randn(8, 200, generator=torch.Generator().manual_seed(0)) * 5 + 100)
    (fresh,) = fresh_inputs(example, 7).args
    assert fresh.shape == (7, 200)
    assert abs(fresh.mean() - 100) < 1
    assert abs(fresh.std() - 5) < 1
    assert torch.equal(fresh, fresh_inputs(example, 7).args[0])


def test_constant_examples_become_standard_normal():
    (fresh,) = fresh_inputs(Inputs.of(torch.zeros(2, 500)), 3).args
    assert 0.8 < fresh.std() < 1.2


def test_whole_numbers_keep_the_range_of_their_position():
    tokens = torch.tensor([[0, 10, 20], [1, 11, 21]])
    fresh = fresh_inputs(Inputs((), {"tokens": tokens, "table": torch.zeros(9)}), 6).keywords
    assert fresh["tokens"].shape == (6, 3)
    assert torch.equal(fresh["tokens"] // 10, torch.tensor([[0, 1, 2]]).expand(6, 3))
    # Without a batch axis an input is the same for all samples.
    assert torch.equal(fresh["table"], torch.zeros(9))


def test_resized_cuts_and_repeats_axes():
    example = Inputs((torch.arange(6).reshape(2, 3),), {"other": torch.zeros(2, 4)})
    named = {"x": example.args[0], "other": example.keywords["other"]}
    found = resized(example, named, {"x": {1: 5}, "other": {1: 2}})
    assert found.args[0].tolist() == [[0, 1, 2, 0, 1], [3, 4, 5, 3, 4]]
    assert found.keywords["other"].shape == (2, 2)
