"""Lowered: rows run by a plan where they share something; see test_planner for how."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running.looped import Looped
from pluribus.mechanisms.running.lowered import WHEN_FROZEN, Lowered
from pluribus.methods import DeepEnsembles, DeepSubEnsembles
from tests.verify import job

x = torch.randn(4, 6)


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def test_rows_with_a_common_trunk_run_by_a_plan_and_agree_with_the_loop():
    rows = job(pl.convert(network(), DeepSubEnsembles(members=3)).eval(), x)
    assert Lowered().why_not(rows) == ""
    assert_close(Lowered().run(rows), torch.stack(Looped().run(rows)))


def test_reasons_against_a_plan_are_told():
    deep = pl.convert(network(), DeepEnsembles(members=3)).eval()
    assert Lowered().why_not(job(deep, x)) == WHEN_FROZEN
    assert Lowered().why_not(job(deep, x, memory=1 << 30)) == ""
    shared = pl.convert(network(), DeepSubEnsembles(members=3))
    assert Lowered().why_not(job(shared.eval(), x, rows=[1])) == "there is one row"
    assert Lowered().why_not(job(shared.train(), x)).startswith("only in eval mode")
