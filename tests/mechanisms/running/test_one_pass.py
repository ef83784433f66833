"""OnePass: one run of a network with exits gives all rows."""

import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running.one_pass import OnePass
from pluribus.methods import EarlyExit, Single
from tests.cases import blocks
from tests.verify import job

x = torch.randn(4, 6)


def test_exits_come_from_one_run():
    ensemble = pl.convert(blocks(3), EarlyExit(), example=x).eval()
    assert OnePass().why_not(job(ensemble, x)) == ""
    members = torch.stack([ensemble.member(row)(x) for row in range(len(ensemble.weights))])
    assert_close(OnePass().run(job(ensemble, x)), members)


def test_other_rows_need_a_run_each():
    assert OnePass().why_not(job(pl.convert(blocks(3), Single()), x)) == "rows need a run each"


def test_memory_cannot_be_bounded():
    ensemble = pl.convert(blocks(3), EarlyExit(), example=x).eval()
    assert "memory" in OnePass().why_not(job(ensemble, x, memory=1000))
