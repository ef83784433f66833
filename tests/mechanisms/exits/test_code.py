"""Code with exits: one run gives all rows, and what no row needs is dropped."""

import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.methods import SAE, EarlyExit
from tests.cases import blocks

x = torch.randn(5, 6)


def test_one_row_is_that_of_a_run_of_all():
    members = pl.convert(blocks(3), EarlyExit(), example=x).eval().members
    rows, code = members.index.rows(training=False), members.code
    tensors, modes = members.tensors.of_one(rows[0]), code.caller.eval_modes
    outputs = code.call_all(tensors, rows, [Inputs.of(x)], modes)
    for place, row in enumerate(rows):
        assert_close(code.call(tensors, row, Inputs.of(x), modes), outputs[place])
        assert_close(code.as_module(members.tensors, row)(x), outputs[place])


def test_kept_rows_drop_what_lies_behind_the_deepest_exit():
    members = pl.convert(blocks(3), EarlyExit(), example=x).eval().members
    code, tensors = members.code.keep(members.tensors, [(0, 0)])
    before = sum(parameter.numel() for parameter in members.parameters())
    assert sum(parameter.numel() for parameter in tensors.parameters()) < before
    expected = members.code.as_module(members.tensors, (0, 0))(x)
    assert_close(code.call(tensors.of_one((0, 0)), (0, 0), Inputs.of(x), code.caller.eval_modes), expected)


def test_a_slot_that_no_row_answers_for_sees_what_the_first_row_does():
    code = pl.convert(blocks(3), SAE(inputs=3), example=x).members.code
    first, second = Inputs.of(x), Inputs.of(x + 1)
    parts = code.parts_of([(0, 1), (2, 1)], [first, second])
    assert [part is first for part in parts] == [True, True, False]
    assert parts[2] is second
