"""Compact graphs: tensors are computed from fewer bytes, where there are fewer, and stay what they are."""

import torch
from torch.testing import assert_close

from pluribus.mechanisms.graph.builder import GraphBuilder
from pluribus.mechanisms.graph.compact import RECIPES, compact

aten = torch.ops.aten
W, X = torch.rand(8, 16), torch.rand(2, 16)


def graph(tensors):
    """Return the graph of a linear layer for each of some weights."""
    builder = GraphBuilder()
    x = builder.input("x")
    with builder.recording:
        weights = tensors()
    outputs = [builder.call(aten.linear.default, x, weight) for weight in weights]
    return builder.finish(builder.call(aten.stack.default, outputs))


def held(module):
    return sum(tensor.numel() for tensor in module.buffers())


def scaled():
    return [W * torch.full((8, 1), float(factor)) for factor in range(4)]


def test_products_are_computed_from_what_they_share():
    module = graph(scaled)
    small = compact(module)
    assert held(module) == 4 * W.numel()
    assert held(small) < 2 * W.numel()
    assert_close(small(X), module(X), rtol=0, atol=0)
    assert len(module.meta[RECIPES]) == 4


def test_leaves_are_copies():
    module = graph(scaled)
    expected = module(X)
    with torch.no_grad():
        W.mul_(2)
    assert_close(compact(module)(X), expected, rtol=0, atol=0)
    W.div_(2)


def test_a_leaf_that_the_graph_holds_anyway_costs_nothing():
    # A table of words that is also the last layer: rows read it one by one, and as one product.
    tables = [torch.rand(8, 16) for _ in range(3)]
    builder = GraphBuilder()
    x = builder.input("x")
    outputs = [builder.call(aten.linear.default, x, table) for table in tables]
    stack = builder.call(aten.stack.default, tables)
    product = builder.call(aten.matmul.default, x, builder.call(aten.transpose.int, stack, 1, 2))
    module = builder.finish(builder.call(aten.add.Tensor, builder.call(aten.stack.default, outputs), product))
    small = compact(module)
    assert held(module) == 6 * W.numel()
    assert held(small) == 3 * W.numel()
    assert_close(small(X), module(X), rtol=0, atol=0)


def test_tensors_that_are_as_small_as_their_leaves_stay():
    module = graph(lambda: [W * torch.rand(8, 16) for _ in range(4)])
    assert compact(module) is module


def test_a_recipe_that_misses_a_change_is_not_used():
    def changed():
        weights = scaled()
        for weight in weights:
            weight.add_(1)
        return weights

    module = graph(changed)
    assert module.meta[RECIPES] == {}
    assert_close(compact(module)(X), module(X))


def test_choices_are_bytes():
    options = torch.rand(3, 8, 16)

    def mixed():
        return [options.gather(0, torch.randint(3, (1, 8, 16)))[0] for _ in range(6)]

    module = graph(mixed)
    small = compact(module)
    kinds = [tensor.dtype for tensor in small.buffers()]
    assert kinds.count(torch.uint8) == 6
    assert_close(small(X), module(X), rtol=0, atol=0)
