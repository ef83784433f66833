"""Copies: large versions and images are not copied to a stack, and those on a stack stay there."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.copies import IMAGES, LARGE
from pluribus.mechanisms.running.executor import Piece
from pluribus.mechanisms.running.stacking import compute


def test_large_versions_run_one_by_one():
    program = read_program(Network(nn.Sequential(nn.ReLU()), torch.zeros(2, 3)))
    (node,), (entry,) = program.steps, program.entries
    wide = LARGE // 4 + 1
    for size, stacked in ((3, True), (wide, False)):
        values = {entry: {place: Piece(torch.randn(1, size)) for place in range(2)}}
        came = compute(program, node, 2, {entry: [0, 1]}, values)
        assert all((piece.position is not None) == stacked for piece in came)


def test_images_of_rows_with_nothing_in_common_are_not_copied_to_a_stack():
    program = read_program(Network(nn.Sequential(nn.ReLU()), torch.zeros(2, 1, 1, 3)))
    (node,), (entry,) = program.steps, program.entries
    wide = IMAGES // 4 + 1
    for size, apart, stacked in ((3, True, True), (wide, False, True), (wide, True, False)):
        values = {entry: {place: Piece(torch.randn(1, 1, 1, size)) for place in range(2)}}
        came = compute(program, node, 2, {entry: [0, 1]}, values, apart=apart)
        assert all((piece.position is not None) == stacked for piece in came)


def test_large_versions_that_lie_on_a_stack_stay_on_it():
    program = read_program(Network(nn.Sequential(nn.ReLU()), torch.zeros(2, 3)))
    (node,), (entry,) = program.steps, program.entries
    stack = torch.randn(2, 1, LARGE // 4 + 1)
    for order, stays in (([1, 0], True), ([0, 0], False)):
        values = {entry: {place: Piece(stack, order[place], 2) for place in range(2)}}
        came = compute(program, node, 2, {entry: [0, 1]}, values)
        assert all((piece.position is not None) == stays for piece in came)
        for place, piece in enumerate(came):
            assert_close(piece.value, stack[order[place]].relu())


def test_large_versions_are_joined_where_they_meet_one_weight_larger_than_a_sample():
    for kernel, joined in ((3, True), (1, False)):
        layer = nn.Conv2d(16, 16, kernel, bias=False)
        x = torch.randn(300, 16, 8, 8)
        program = read_program(Network(layer, x[:2]))
        (node,), (entry,), (weight,) = program.steps, program.entries, program.held
        assert x.nbytes > LARGE
        assert (layer.weight.nbytes > x[0].nbytes) == joined
        values = {entry: {0: Piece(x), 1: Piece(-x)}, weight: {0: Piece(layer.weight.detach())}}
        came = compute(program, node, 2, {entry: [0, 1], weight: [0, 0]}, values)
        assert all((piece.position is not None) == joined for piece in came)
        for piece, given in zip(came, (x, -x), strict=True):
            assert_close(piece.value, layer(given).detach())
