"""Picklable graphs: a graph comes back as it was, with its tensors, its notes and the graph that it calls."""

import pickle

import torch
from torch.fx import GraphModule

from pluribus.mechanisms.graph.builder import GraphBuilder
from pluribus.mechanisms.graph.compact import RECIPES
from pluribus.mechanisms.graph.picklable import PicklableGraph

aten = torch.ops.aten
x = torch.randn(2, 4)


def again(module):
    return pickle.loads(pickle.dumps(module))


def test_a_tensor_of_the_size_of_the_batch_alone_comes_back() -> None:
    builder = GraphBuilder()
    entry = builder.input("x")
    size = builder.call(aten.sym_size.int, entry, 0)
    start = builder.call(aten.zeros.default, [size, 1], dtype=torch.float32)
    module = builder.finish(builder.call(aten.cat.default, [entry, start], -1))
    assert torch.equal(again(module)(x), module(x))


def test_steps_and_tensors_come_back_as_they_were() -> None:
    builder = GraphBuilder()
    product = builder.call(aten.linear.default, builder.input("x"), torch.randn(3, 4))
    module = builder.finish(builder.call(aten.clamp.default, product, max=float("inf")))
    module.meta[RECIPES] = {"known": 1}
    other = again(module)
    assert isinstance(other, PicklableGraph)
    assert not other.training
    assert [node.name for node in other.graph.nodes] == [node.name for node in module.graph.nodes]
    assert other.state_dict().keys() == module.state_dict().keys()
    assert other.meta[RECIPES] == {"known": 1}
    assert torch.equal(other(x), module(x))


def test_the_graph_that_rows_call_comes_back() -> None:
    inner, outer = GraphBuilder(), GraphBuilder()
    row = inner.finish(inner.call(aten.relu.default, inner.input("x")))
    module = outer.finish(outer.module_of(row, [outer.input("x")]))
    other = again(module)
    assert isinstance(other.row, GraphModule)
    assert torch.equal(other(x), module(x))
