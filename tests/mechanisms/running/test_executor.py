"""Executors: versions that lie on one stack stay there."""

import torch
from torch.testing import assert_close

from pluribus.mechanisms.running.executor import EAGER, Piece, by_position, pieces_of


def test_versions_that_lie_together_are_not_copied():
    stack = torch.randn(4, 3)
    pieces = [Piece(stack, place) for place in (1, 2, 3)]
    assert EAGER.together(pieces).data_ptr() == stack[1].data_ptr()
    assert_close(EAGER.together(pieces[::-1]), stack[[3, 2, 1]])
    assert_close(EAGER.together([Piece(stack[2]), Piece(stack, 0)]), stack[[2, 0]])


def test_versions_are_taken_in_the_order_of_memory():
    first, second = torch.randn(2, 3), torch.randn(2, 3)
    pieces = [Piece(second, 1), Piece(first, 0), Piece(second, 0)]
    assert by_position(pieces) == [2, 0, 1]


def test_pieces_come_back_in_the_order_of_their_numbers():
    stack = torch.arange(3)
    assert [int(piece.value) for piece in pieces_of(stack, [2, 0, 1])] == [1, 2, 0]
