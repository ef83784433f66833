"""Packing: masks are bits, choices are bytes, everything else is as large as it is."""

import pytest
import torch

from pluribus.mechanisms.graph.packing import FEWEST_BITS, fits_byte, packed_bytes, two_values

MASK = torch.arange(FEWEST_BITS) % 2


@pytest.mark.parametrize(
    ("tensor", "count"),
    [
        (MASK.bool(), FEWEST_BITS // 8),
        (MASK.float() * 3, FEWEST_BITS // 8),
        (MASK, FEWEST_BITS // 8),
        (torch.arange(FEWEST_BITS), FEWEST_BITS),
        (torch.arange(FEWEST_BITS) - 1, 8 * FEWEST_BITS),
        (torch.arange(FEWEST_BITS) * 10, 8 * FEWEST_BITS),
        (torch.rand(FEWEST_BITS), 4 * FEWEST_BITS),
        (MASK[:8].bool(), 8),
    ],
)
def test_tensors_take_the_bytes_that_their_values_need(tensor, count):
    assert packed_bytes(tensor) == count


def test_masks_have_two_values():
    assert two_values(MASK.float() * 3) == (0, 3)
    assert two_values(torch.rand(FEWEST_BITS)) == ()
    assert fits_byte(MASK)
    assert not fits_byte(MASK.float())
