"""Channels are picked out of maps that have them last in memory, and stay last."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.graph.builder import GraphBuilder, aten
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.reuse_memory import reuse_memory
from pluribus.methods import Masksembles

KERNEL, POSITIONS, FIRST = torch.randn(6, 2, 3, 3), torch.tensor([0, 2, 5]), torch.tensor([0])
LAST = KERNEL.contiguous(memory_format=torch.channels_last)
IMAGES = torch.randn(2, 2, 7, 5)


def picked_axes(write: Callable[[GraphBuilder, object], object]) -> list[int]:
    """Return the axes along which what runs picks, after comparing with the plain graph."""
    builder = GraphBuilder()
    module = builder.finish(write(builder, builder.input("x")))
    graph = reuse_memory(module, [IMAGES])
    for x in (IMAGES, IMAGES[:1], IMAGES.repeat(3, 1, 1, 1)):
        found = GraphModule(module, graph)(x)
        assert_close(found, module(x), rtol=0, atol=0)
    picks = [node for node in graph.nodes if operator_name(node) == "index_select"]
    return [0 if operator_name(pick.args[0]) == "flatten" else pick.args[1] for pick in picks]


def pick(b: GraphBuilder, value: object, axis: int = 1, positions: torch.Tensor = POSITIONS) -> object:
    return b.call(aten.index_select.default, value, axis, positions)


def convolved(b: GraphBuilder, x: object, kernel: torch.Tensor) -> object:
    return b.call(aten.conv2d.default, x, kernel, None, [1, 1], [1, 1])


def test_picks_of_maps_with_channels_last_are_columns() -> None:
    def write(b: GraphBuilder, x: object) -> object:
        value = b.call(aten.relu.default, convolved(b, x, LAST))
        return pick(b, pick(b, value), 1, torch.tensor([2, 0]))

    # A pick of what was picked knows that the channels still lie last.
    assert picked_axes(write) == [0, 0]


def test_a_kernel_of_one_pixel_has_the_order_of_what_it_reads() -> None:
    def write(b: GraphBuilder, x: object, kernel: torch.Tensor) -> object:
        return pick(b, b.call(aten.conv2d.default, convolved(b, x, kernel), torch.randn(6, 6, 1, 1)))

    assert picked_axes(lambda b, x: write(b, x, LAST)) == [0]
    assert picked_axes(lambda b, x: write(b, x, KERNEL)) == [1]


@pytest.mark.parametrize(
    "write",
    [
        lambda b, x: pick(b, x, 1, torch.tensor([1])),
        lambda b, x: pick(b, convolved(b, x, KERNEL)),
        lambda b, x: pick(b, convolved(b, x, LAST), 2),
        lambda b, x: pick(b, b.call(aten.select.int, convolved(b, x, LAST), 3, 0)),
        lambda b, x: pick(
            b, b.call(aten.sum.dim_IntList, convolved(b, x, LAST), [1], True), 1, POSITIONS[:1]
        ),
    ],
    ids=["input", "first", "another axis", "no map", "an operator of another kind"],
)
def test_other_picks_stay(write: Callable[[GraphBuilder, object], object]) -> None:
    assert 0 not in picked_axes(write)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.head = nn.Conv2d(3, channels, 3, padding=1), nn.Linear(channels, 4)
        self.blocks = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).relu()
        for block in self.blocks:
            x = x + block(x).relu()
        return self.head(x.mean((2, 3)))


@pytest.mark.parametrize(("channels", "alike"), [(72, True), (40, False)])
def test_members_that_are_cut_out_have_channels_last(channels: int, alike: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 9)
    ensemble = pl.convert(Residual(channels), Masksembles(members=3), example=x).eval()
    frozen = ensemble.freeze()
    # Members of one width are rows of one program, others are graphs of their own.
    fewest, most = re.findall(r"members have ([0-9,]+) to ([0-9,]+) weights", frozen.notes[0])[0]
    assert (fewest == most) == alike
    assert "channels last in memory" in frozen.notes
    kernels = [one for one in (*frozen.parameters(), *frozen.buffers()) if one.ndim == 4]
    assert kernels
    assert all(one.is_contiguous(memory_format=torch.channels_last) for one in kernels)
    assert_close(frozen(x), ensemble(x), rtol=1e-4, atol=1e-5)
