"""Depth first: an order of steps that needs less memory at once."""

from operator import getitem

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import cnn
from pluribus.mechanisms.graph.builder import GraphBuilder, aten
from pluribus.mechanisms.graph.depth_first import depth_first
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.reuse_memory import reuse_memory
from pluribus.methods import BatchEnsemble, DeepEnsembles

X = torch.randn(3, 8)


def side_by_side(width: int, views: bool = False) -> GraphModule:
    """Return two members in one graph, the steps of one beside those of the other."""
    builder = GraphBuilder()
    values = [builder.input("x")] * 2
    for inputs, outputs in ((8, width), (width, width), (width, 2)):
        values = [builder.call(aten.linear.default, value, torch.randn(outputs, inputs)) for value in values]
        if views:
            values = [builder.call(aten.unsqueeze.default, value, 0) for value in values]
            values = [builder.call(aten.select.int, value, 0, 0) for value in values]
        values = [builder.call(aten.tanh.default, value) for value in values]
    return builder.finish(builder.call(aten.stack.default, values))


def members_in_order(module: GraphModule) -> list[str]:
    """Return which member each layer belongs to, in the order in which what is derived runs."""
    graph = reuse_memory(module, [X])
    assert_close(GraphModule(module, graph)(X), module(X), rtol=0, atol=0)
    owner = dict[object, str]()
    order = []
    for node in graph.nodes:
        if operator_name(node) != "linear":
            owner[node] = owner.get(node.args[0], "") if node.args else ""
            continue
        owner[node] = owner.get(node.args[0]) or node.name
        order.append(owner[node])
    return order


def test_members_that_run_apart_run_one_after_the_other() -> None:
    for views in (False, True):
        first, *_, last = order = members_in_order(side_by_side(64, views))
        assert order == [first] * 3 + [last] * 3


def test_an_order_that_needs_as_much_memory_stays() -> None:
    builder = GraphBuilder()
    x = builder.input("x")
    values = [builder.call(aten.linear.default, x, torch.randn(4, 8)) for _ in range(2)]
    module = builder.finish(builder.call(aten.stack.default, values[::-1]))
    before = [node.name for node in module.graph.nodes]
    depth_first(module.graph, {node.name: {torch.UntypedStorage(48)} for node in module.graph.nodes})
    assert [node.name for node in module.graph.nodes] == before


def test_values_without_a_shape_leave_the_order() -> None:
    module = side_by_side(64)
    before = [node.name for node in module.graph.nodes]
    depth_first(module.graph, {})
    assert [node.name for node in module.graph.nodes] == before


def test_parts_of_one_value_count_once() -> None:
    builder = GraphBuilder()
    x = builder.input("x")
    parts = builder.call(aten.split.Tensor, builder.call(aten.linear.default, x, torch.randn(8, 8)), 4, 1)
    values = [builder.call(aten.tanh.default, builder.call(getitem, parts, place)) for place in range(2)]
    module = builder.finish(builder.call(aten.stack.default, values))
    assert_close(GraphModule(module, reuse_memory(module, [X]))(X), module(X))


def test_a_reshape_that_copies_counts_as_new_memory() -> None:
    def layer(value: object, inputs: int, outputs: int) -> object:
        return builder.call(aten.linear.default, value, torch.randn(outputs, inputs))

    builder = GraphBuilder()
    x = builder.input("x")
    # Depth first, 40 numbers of a sample are kept while the reshape needs 160, though its schema has a view.
    turned = builder.call(
        aten.permute.default, builder.call(aten.unflatten.int, layer(x, 8, 80), 1, [2, 40]), [0, 2, 1]
    )
    narrow = layer(builder.call(aten.reshape.default, turned, [-1, 80]), 80, 10)
    wide = layer(layer(x, 8, 90), 90, 40)
    module = builder.finish(builder.call(aten.cat.default, [wide, narrow], 1))
    graph = reuse_memory(module, [X])
    found = pl.cost(GraphModule(module, graph), X).peak_activation_bytes
    assert found == pl.cost(module, X).peak_activation_bytes == len(X) * 4 * 160


def test_steps_that_nothing_reads_are_left_out() -> None:
    module = side_by_side(64)
    with module.graph.inserting_before(module.graph.output_node()):
        last = next(node for node in module.graph.nodes if operator_name(node) == "tanh")
        module.graph.call_function(aten.relu.default, (last,))
    module.recompile()
    assert len(members_in_order(module)) == 6


def test_what_runs_needs_less_memory_than_the_plain_graph() -> None:
    images = torch.randn(2, 1, 28, 28)
    for method in (DeepEnsembles(members=4), BatchEnsemble(members=4)):
        frozen = pl.convert(cnn(classes=3, in_channels=1), method, example=images).eval().freeze()
        single = pl.convert(cnn(classes=3, in_channels=1), "single", example=images).eval().freeze()
        together, alone = (pl.cost(one, images).peak_activation_bytes for one in (frozen, single))
        # Four members one after the other need little more than one.
        assert together < 1.5 * alone


def test_a_graph_of_the_user_with_skips_keeps_its_numbers() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.deep, self.up = nn.Linear(8, 16), nn.Linear(16, 32), nn.Linear(48, 3)

        def forward(self, x: Tensor) -> Tensor:
            shallow = self.down(x).relu()
            return self.up(torch.cat([self.deep(shallow).relu(), shallow], 1))

    ensemble = pl.convert(Skips(), DeepEnsembles(members=3), example=X).eval()
    assert_close(ensemble.freeze()(X), ensemble(X))
