"""Graphs in files: the same graph comes back, and nothing else can come."""

import json
import math

import pytest
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

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
        (broken(CALL, args=[None] * 9), "must be 1 to 3 arguments"),
        (broken(CALL, kwargs={"x=1); import os; (y": 1}), "must be arguments of"),
        (broken(READ, tensor="__class__"), "must be a tensor of the file"),
        (broken(0, name="lambda"), "must be a name"),
        (broken(0, does="import"), "must be input, read, call, make, row or return"),
        (broken(0, does="row"), "must be input, read, call, make, row or return"),
        (data()[:-1], "the last node must return a value"),
        ([], "the last node must return a value"),
        (broken(-1, value=0.5), "value must be a tensor, got 0.5"),
        (broken(-1, value=None), "value must be a tensor, got None"),
        (broken(-1, value=[{"node": 0}]), "value must be a tensor"),
        ([*data(), data()[-1]], "the last node alone must return a value"),
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


def made(**changes):
    """Nodes of a graph that adds a product of two tensors of the file, which is computed when it is read."""
    node = {"does": "make", "operator": "aten.mul.Tensor", "args": [{"node": 1}, {"node": 2}], "kwargs": {}}
    call = {"does": "call", "operator": "aten.add.Tensor", "args": [{"node": 0}, {"node": 3}], "kwargs": {}}
    first, second = ({"does": "read", "tensor": name} for name in ("first", "second"))
    last = {"does": "return", "value": {"node": 4}}
    return [{"does": "input", "name": "x"}, first, second, {**node, **changes}, call, last]


FACTORS = {"first": torch.rand(3, 1), "second": torch.rand(1, 4)}


@pytest.mark.parametrize("parameter", [False, True])
def test_tensors_are_made_when_a_file_is_read(parameter):
    GRAPH.check(made(parameter=parameter), "")
    module = graph_from_list(made(parameter=parameter), FACTORS)
    held = [*module.parameters(), *module.buffers()]
    assert [tuple(tensor.shape) for tensor in held] == [(3, 4)]
    assert len(list(module.parameters())) == parameter
    assert_close(module(torch.zeros(3, 4)), FACTORS["first"] * FACTORS["second"], rtol=0, atol=0)
    assert [node.op for node in module.graph.nodes].count("call_function") == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"args": [{"node": 0}, {"node": 2}]}, "must be made of tensors of the file, got an input"),
        ({"operator": "aten.mm.default", "args": [{"node": 2}, {"node": 2}]}, "must make a tensor, got"),
        (
            {"operator": "aten.expand.default", "args": [{"node": 1}, [3, 10**12]]},
            "has room for",
        ),
        ({"operator": "aten.rand.default", "args": [[2]]}, "must be a known operator"),
    ],
)
def test_what_cannot_be_made_is_refused(changes, reason):
    with pytest.raises(Mismatch, match=reason):
        graph_from_list(made(**changes), FACTORS)


def test_two_inputs_of_one_name_are_refused():
    nodes = [
        {"does": "input", "name": "x"},
        {"does": "input", "name": "x"},
        {"does": "return", "value": {"node": 0}},
    ]
    with pytest.raises(Mismatch, match="must be of one input, got 'x' twice"):
        graph_from_list(nodes, {})


class Watched(TorchDispatchMode):
    """Notes the largest tensor that is not on the device without memory."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.device.type != "meta":
            self.largest = max(self.largest, found.nbytes)
        return found


@pytest.mark.parametrize(
    ("operator", "args"),
    [
        ("aten.full.default", [[2_000_000], 1.0]),
        ("aten.arange.default", [2_000_000]),
        ("aten.linspace.default", [0, 1, 2_000_000]),
        ("aten.eye.default", [2_000]),
        ("aten.new_ones.default", [{"node": 1}, [2_000_000]]),
    ],
)
def test_tensors_that_the_file_has_no_room_for_take_no_memory(operator, args):
    with Watched() as watched, pytest.raises(Mismatch, match="has room for"):
        graph_from_list(made(operator=operator, args=args), FACTORS)
    assert watched.largest < 1000


def test_numbers_beyond_all_types_are_refused():
    with pytest.raises(Mismatch, match="must make a tensor"):
        graph_from_list(made(operator="aten.full.default", args=[[2], 10**400]), FACTORS)
