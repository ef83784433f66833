"""Masks as bits: graphs compute what they computed, and hold a bit for each number of a mask."""

import pytest
import torch

from pluribus.mechanisms.graph.builder import GraphBuilder
from pluribus.mechanisms.graph.pack_masks import MOST_MASKS, WORTH, pack_masks

aten = torch.ops.aten
SHAPE = (3, 7, 61)
"""Its number of entries is no multiple of eight."""
X = torch.randn(2, *SHAPE)


def graph(masks):
    """Return the graph that multiplies its input by some masks, one after the other."""
    builder = GraphBuilder()
    value = builder.input("x")
    for mask in masks:
        value = (
            builder.call(aten.where.self, mask, value, torch.ones(()))
            if mask.dtype is torch.bool
            else (builder.call(aten.mul.Tensor, value, mask))
        )
    return builder.finish(value)


def mask(dtype=torch.float32, value=1.0):
    return ((torch.rand(SHAPE) > 0.5) * value).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool, torch.uint8], ids=str)
def test_masks_come_back_from_their_bits(dtype):
    masks = [mask(dtype), mask(dtype), mask(dtype, 1.25 if dtype.is_floating_point else 1)]
    module = graph(masks)
    packed = pack_masks(module)
    assert torch.equal(packed(X), module(X))
    assert packed(X).dtype == module(X).dtype
    taken = sum(tensor.nbytes for name, tensor in packed.named_buffers() if name.startswith("packed_"))
    assert taken == len(masks) * -(-masks[0].numel() // 8)


def test_what_is_no_mask_or_saves_little_stays():
    small = torch.tensor([0.0, 2.0]).repeat(61)[:61]
    assert small.nbytes < WORTH
    for tensor in (
        torch.randn(SHAPE),
        mask() + 1,
        small,
        mask().transpose(0, 1).contiguous().transpose(0, 1),
    ):
        module = graph([tensor])
        assert pack_masks(module) is module


def test_masks_that_are_too_many_stay(monkeypatch):
    module = graph([mask(), mask()])
    monkeypatch.setattr("pluribus.mechanisms.graph.pack_masks.MOST_MASKS", 1)
    assert pack_masks(module) is module
    assert MOST_MASKS > 1
