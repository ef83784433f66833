"""Graph builder: constants are computed at once, and every tensor is stored once."""

import operator

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.errors import UnreadableError
from pluribus.mechanisms.graph.builder import GROWTH, GraphBuilder

aten = torch.ops.aten


def test_operators_on_constants_are_computed_at_once():
    builder, weight = GraphBuilder(), torch.randn(3, 4)
    x = builder.input("x")
    doubled = builder.call(aten.mul.Tensor, weight, 2)
    module = builder.finish(builder.call(aten.linear.default, x, doubled))
    assert [node.op for node in module.graph.nodes].count("call_function") == 1
    given = torch.randn(2, 4)
    assert_close(module(given), given @ (2 * weight).T)


def test_a_tensor_is_stored_once_and_copied():
    builder, weight = GraphBuilder(), torch.randn(4, 4)
    first = builder.call(aten.linear.default, builder.input("x"), weight)
    module = builder.finish(builder.call(aten.linear.default, first, weight))
    (stored,) = module.buffers()
    assert stored.data_ptr() != weight.data_ptr()
    assert_close(stored, weight)


def test_weights_and_what_follows_from_them_are_parameters():
    builder, weight, mask = GraphBuilder(), torch.randn(4, 4), torch.ones(4)
    builder.mark_weights([weight])
    scaled = builder.call(aten.mul.Tensor, weight, 2)
    x = builder.call(aten.mul.Tensor, builder.input("x"), mask)
    module = builder.finish(builder.call(aten.linear.default, x, scaled))
    assert [len(list(tensors)) for tensors in (module.parameters(), module.buffers())] == [1, 1]
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_a_constant_that_grows_is_computed_in_every_run():
    builder, table = GraphBuilder(), torch.randn(1, 4)
    wide = builder.call(aten.repeat.default, table, [2 * GROWTH, 1])
    module = builder.finish(builder.call(aten.add.Tensor, builder.input("x"), wide))
    assert [tensor.shape for tensor in module.buffers()] == [(1, 4)]


def test_dropout_in_eval_mode_and_copies_leave_no_trace():
    builder = GraphBuilder()
    x = builder.input("x")
    assert builder.call(aten.dropout.default, x, 0.5, False) is x
    assert builder.call(aten.detach.default, builder.call(aten.clone.default, x)) is x
    assert builder.call(aten.dropout.default, x, 0.5, True) is not x


def test_views_are_written_once():
    builder = GraphBuilder()
    x = builder.input("x")
    assert builder.call(aten.select.int, x, 0, 1) is builder.call(aten.select.int, x, 0, 1)
    assert builder.call(aten.relu.default, x) is not builder.call(aten.relu.default, x)


def test_parts_of_several_constants_are_taken_at_once():
    builder = GraphBuilder()
    parts = builder.call(aten.split.Tensor, torch.arange(4), 2)
    assert builder.call(operator.getitem, parts, 1).tolist() == [2, 3]


def test_an_operator_with_a_graph_of_its_own_is_refused():
    builder = GraphBuilder()
    with pytest.raises(UnreadableError, match="runs a graph of its own"):
        builder.call(map, nn.ReLU(), builder.input("x"))
