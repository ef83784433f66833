"""In-place operators: plain ones where a value of their own is written into."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.in_place import without_in_place, writes_into
from pluribus.mechanisms.graph.operators import operator_name
from tests.zoo import Apply

aten = torch.ops.aten


def graph_of(function):
    x = torch.randn(3, 4)
    module = torch.export.export(Apply(function), (x,), strict=False).graph_module
    return module, without_in_place(module), x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2).relu_(),
        lambda x: (y := x * 2).add_(1) + y,
        lambda x: (x + 1).mul_(2).sub_(3),
    ],
    ids=["one", "read later", "several"],
)
def test_writing_into_a_value_of_their_own_becomes_a_new_value(function):
    module, plain, x = graph_of(function)
    assert any(writes_into(node) for node in module.graph.nodes)
    assert_close(plain(x.clone())[0], function(x.clone()))


def test_in_place_operators_are_gone_and_others_stay():
    _, plain, _ = graph_of(lambda x: nn.functional.batch_norm((x * 2).relu_(), torch.zeros(4), torch.ones(4)))
    names = [operator_name(node) for node in plain.graph.nodes if node.op == "call_function"]
    assert "batch_norm" in names
    assert "relu" in names
    assert "relu_" not in names


@pytest.mark.parametrize(
    "function", [lambda x: x.relu_(), lambda x: (x * 2)[0].relu_()], ids=["input", "view"]
)
def test_writing_into_inputs_and_views_stays(function):
    _, plain, _ = graph_of(function)
    assert any(writes_into(node) for node in plain.graph.nodes)
