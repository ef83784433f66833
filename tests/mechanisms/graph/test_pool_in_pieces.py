"""Wide convolutions that are pooled at once run in pieces."""

from collections.abc import Callable

import pytest
import torch
from torch.fx import GraphModule
from torch.testing import assert_close

from pluribus.mechanisms.graph.builder import GraphBuilder, aten
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.reuse_memory import reuse_memory

Write = Callable[[GraphBuilder, object], object]
WIDE, NARROW = torch.randn(12, 2, 1, 1), torch.randn(3, 2, 1, 1)
BIAS = torch.randn(12)
IMAGES = torch.randn(2, 2, 256, 256)  # a map of one channel has half a piece


def pieces_of(write: Write) -> int:
    """Return how many convolutions run in place of one, after comparing with the plain graph."""
    builder = GraphBuilder()
    module = builder.finish(write(builder, builder.input("x")))
    graph = reuse_memory(module, [IMAGES])
    for x in (IMAGES, IMAGES[:1]):
        assert_close(GraphModule(module, graph)(x), module(x))
    return sum(operator_name(node) == "conv2d" for node in graph.nodes)


def mean_of(b: GraphBuilder, x: object, axes: tuple[int, ...]) -> object:
    projected = b.call(aten.relu.default, b.call(aten.conv2d.default, x, WIDE, BIAS))
    return b.call(aten.mean.dim, projected, list(axes))


@pytest.mark.parametrize("axes", [(2, 3), (-1, -2)])
def test_a_wide_projection_runs_in_pieces(axes: tuple[int, ...]) -> None:
    assert pieces_of(lambda b, x: mean_of(b, x, axes)) == 6


def test_a_flattened_map_and_a_projection_without_a_bias_run_in_pieces() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        flat = b.call(aten.flatten.using_ints, b.call(aten.conv2d.default, x, WIDE), 2)
        return b.call(aten.mean.dim, flat, [2])

    assert pieces_of(write) == 6


def test_adaptive_pooling_runs_in_pieces() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        return b.call(aten.adaptive_avg_pool2d.default, b.call(aten.conv2d.default, x, WIDE, BIAS), [1, 1])

    assert pieces_of(write) == 6


def test_a_mean_over_channels_needs_all_of_them() -> None:
    assert pieces_of(lambda b, x: mean_of(b, x, (1, 2))) == 1


def test_a_map_that_is_read_again_stays_whole() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        projected = b.call(aten.conv2d.default, x, WIDE)
        return b.call(aten.add.Tensor, b.call(aten.mean.dim, projected, [2, 3], True), projected)

    assert pieces_of(write) == 1


def test_an_operator_that_joins_channels_needs_all_of_them() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        projected = b.call(aten.softmax.int, b.call(aten.conv2d.default, x, WIDE), 1)
        return b.call(aten.mean.dim, projected, [2, 3])

    assert pieces_of(write) == 1


def test_small_maps_and_grouped_projections_stay_whole() -> None:
    def small(b: GraphBuilder, x: object) -> object:
        pooled = b.call(aten.avg_pool2d.default, x, [8, 8])
        return b.call(aten.mean.dim, b.call(aten.conv2d.default, pooled, WIDE), [2, 3])

    def grouped(b: GraphBuilder, x: object) -> object:
        weight = WIDE[:, :1].contiguous()
        projected = b.call(aten.conv2d.default, x, weight, None, [1, 1], [0, 0], [1, 1], 2)
        return b.call(aten.mean.dim, projected, [2, 3])

    assert pieces_of(small) == pieces_of(grouped) == 1


def test_channels_that_do_not_divide_stay_whole() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        return b.call(aten.mean.dim, b.call(aten.conv2d.default, x, NARROW), [2, 3])

    assert pieces_of(write) == 1


def test_a_projection_whose_weights_come_by_name_stays_whole() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        projected = b.call(aten.conv2d.default, x, WIDE, bias=BIAS)
        return b.call(aten.mean.dim, projected, [2, 3])

    assert pieces_of(write) == 1


def test_pooling_over_channels_of_a_flattened_map_needs_all_of_them() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        flat = b.call(aten.flatten.using_ints, b.call(aten.conv2d.default, x, WIDE), 2)
        return b.call(aten.adaptive_avg_pool2d.default, flat, [6, 1])

    assert pieces_of(write) == 1


def test_a_map_without_a_batch_stays_whole() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        first = b.call(aten.select.int, x, 0, 0)
        # So wide that a part of its height were worth a piece.
        projected = b.call(aten.conv2d.default, first, WIDE, None, [1, 1], [200, 200])
        return b.call(aten.adaptive_avg_pool2d.default, projected, [1, 1])

    assert pieces_of(write) == 1
