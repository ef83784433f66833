"""Graphs in files: the same graph comes back, and nothing else can come."""

import json
import math

import pytest
import torch
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.graph.builder import GraphBuilder
from pluribus.mechanisms.graph.graph_file import GRAPH, graph_from_list, graph_to_list
from pluribus.mechanisms.graph.operators import find_operator
from pluribus.schema import Mismatch

aten = torch.ops.aten


def graph():
    builder = GraphBuilder()
    x = builder.input("x")
    y = builder.call(aten.linear.default, x, torch.randn(3, 4))
    y = builder.call(aten.clamp.default, builder.call(aten.to.dtype, y, torch.float64), max=math.inf)
    return builder.finish(builder.call(aten.stack.default, [y, y]))


def data():
    return json.loads(json.dumps(graph_to_list(graph())))


def test_a_graph_comes_back():
    module, x = graph(), torch.randn(2, 4)
    nodes = json.loads(json.dumps(graph_to_list(module)))
    GRAPH.check(nodes, "")
    again = graph_from_list(nodes, dict(module.named_buffers()))
    assert_close(again(x), module(x), rtol=0, atol=0)
    assert not again.training


def broken(place, **changes):
    nodes = data()
    nodes[place] = {**nodes[place], **changes}
    return nodes


CALL = next(place for place, node in enumerate(data()) if node["does"] == "call")
READ = next(place for place, node in enumerate(data()) if node["does"] == "read")


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        (broken(CALL, operator="aten.from_file.default"), "operator must be a known operator"),
        (broken(CALL, operator="aten.relu_.default"), "operator must be a known operator"),
        (broken(CALL, operator="aten.rand.default"), "operator must be a known operator"),
        (broken(CALL, operator="os.system"), "operator must be a known operator"),
        (broken(CALL, operator=["aten.relu.default"]), "operator must be a known operator"),
        (broken(CALL, args=[{"node": 99}]), "must refer to an earlier node"),
        (broken(CALL, args=[{"node": -1}]), "must refer to an earlier node"),
        (broken(CALL, args=["self"]), "must hold plain arguments"),
        (broken(CALL, args=[None] * 9), "at most 3 arguments"),
        (broken(CALL, kwargs={"x=1); import os; (y": 1}), "must be arguments of"),
        (broken(READ, tensor="__class__"), "must be a tensor of the file"),
        (broken(0, name="lambda"), "must be a name"),
        (broken(0, does="import"), "must be input, read, call, row or return"),
        (broken(0, does="row"), "must be input, read, call, row or return"),
        (data()[:-1], "the last node must return a value"),
        ([], "the last node must return a value"),
    ],
    ids=lambda one: one[:25] if isinstance(one, str) else "",
)
def test_what_is_not_allowed_is_refused(nodes, reason):
    with pytest.raises(Mismatch, match=reason):
        graph_from_list(nodes, {"tensor_0": torch.randn(3, 4)})


def test_names_of_inputs_are_words():
    with pytest.raises(Mismatch, match="must be a name"):
        GRAPH.check(broken(0, name="x): import os #"), "")


def test_unknown_operators_cannot_be_written():
    builder = GraphBuilder()
    module = builder.finish(builder.call(torch.sin, builder.input("x")))
    with pytest.raises(InputError, match="operators are known"):
        graph_to_list(module)


@pytest.mark.parametrize("name", ["aten.linear.default", "aten.gelu.default", "aten.max_pool2d.default"])
def test_operators_of_the_table_are_found(name):
    assert str(find_operator(name)) == name


@pytest.mark.parametrize("name", ["aten.linear", "aten.linear.name", "aten.linear.none", "prim.device.a"])
def test_other_names_are_none(name):
    assert find_operator(name) is None
