"""Shrinking: every method's rows, fewer of them, and nothing that none of them uses."""

import copy

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import InputError
from pluribus.methods import (
    ECMP,
    EMP,
    BatchEnsemble,
    DeepEnsembles,
    DeepSubEnsembles,
    DropConnect,
    LayerEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
    Single,
)
from tests import zoo
from tests.cases import case_named, each, run

METHODS = [
    DeepEnsembles(members=4, prior_scale=0.5),
    DeepSubEnsembles(members=4),
    PackedEnsembles(members=4),
    BatchEnsemble(members=4),
    MCDropout(rate=0.3, draws=4),
    LayerEnsembles(options=2, draws=4),
    Masksembles(members=4),
    EMP(options=4, draws=64),
    ECMP(options=2, draws=4),
    DropConnect(rate=0.3, draws=4),
]
SOME = [case_named(name) for name in ("residual_cnn", "keywords")]
each_method = pytest.mark.parametrize("method", METHODS, ids=str)


def parameters(ensemble):
    return sum(p.numel() for p in ensemble.parameters())


@each_method
@each(SOME)
@pytest.mark.sampled(3)
def test_a_shrunk_ensemble_computes_what_its_members_computed(case, method, tmp_path):
    ensemble, x = pl.convert(case.model(), method, example=case.inputs()).eval(), case.inputs()
    before, state = run(ensemble, x), copy.deepcopy(ensemble.state_dict())
    small = ensemble.shrink([3, 1])
    assert_close(run(small, x), before[[3, 1]])
    assert_close(run(small.member(0), x), before[3])
    assert_close(run(small.freeze(), x), before[[3, 1]])
    assert_close(ensemble.state_dict(), state, rtol=0, atol=0)
    assert parameters(small) <= parameters(ensemble)
    small.save(tmp_path / "small")
    loaded = pl.load(tmp_path / "small", case.model(), example=x).eval()
    assert_close(run(loaded, x), run(small, x), rtol=0, atol=0)
    assert (loaded.shrunk_to, loaded.method) == ((3, 1), method)


@each_method
def test_a_shrunk_ensemble_goes_on_training(method):
    case = case_named("residual_cnn")
    ensemble = pl.convert(case.model(), method, example=case.inputs())
    small = ensemble.shrink([2, 0]).train()
    small.loss(case.inputs(), case.target()).backward()
    assert all((p.grad is not None) == p.requires_grad for p in small.parameters())
    groups = small.parameter_groups(lr=0.1, weight_decay=0.1)
    assert [group["weight_decay"] for group in groups] == [
        group["weight_decay"] for group in ensemble.parameter_groups(lr=0.1, weight_decay=0.1)
    ]


def test_what_no_member_uses_is_gone():
    model = zoo.mlp()
    one = parameters(pl.convert(model, Single()))
    for method, rows in [
        (DeepEnsembles(members=5), 2),
        (DeepEnsembles(members=5, prior_scale=1.0), 4),
        (LayerEnsembles(options=3, prior_scale=0.0, draws=27), 2),
    ]:
        small = pl.convert(model, method).shrink([0, len(pl.convert(model, method).weights) - 1])
        assert parameters(small) == rows * one
    x = torch.zeros(3, 6)
    ensemble = pl.convert(model, LayerEnsembles(options=3)).eval()
    small, cost = ensemble.shrink([0, 1]), pl.cost(model, x)  # they differ in the last layer alone
    sizes = tuple(small.members.tensors.sizes.values())
    assert sizes == (1,) * (len(small.sites) - 1) + (2,)
    last, products = (
        sum(p.numel() for p in list(model.parameters())[-2:]),
        list(model.parameters())[-2].numel(),
    )
    assert pl.cost(small, x).multiply_adds == 2 * (cost.multiply_adds + 3 * products)  # with the prior
    assert pl.cost(small, x).parameters == 2 * (cost.parameters + last)


def test_shrinking_again_counts_from_the_first_rows(tmp_path):
    case = case_named("mlp")
    ensemble = pl.convert(case.model(), LayerEnsembles(options=3, draws=9)).eval()
    twice = ensemble.shrink([8, 5, 2, 0]).shrink([2, 0])
    assert twice.shrunk_to == (2, 8)
    assert_close(twice(case.inputs()), ensemble(case.inputs())[[2, 8]], rtol=0, atol=0)
    twice.save(tmp_path / "twice")
    loaded = pl.load(tmp_path / "twice", case.model()).eval()
    assert_close(loaded(case.inputs()), twice(case.inputs()), rtol=0, atol=0)


def test_the_best_rows_stay_ranked_and_others_do_not():
    case = case_named("mlp")
    ensemble = pl.convert(case.model(), DeepEnsembles(members=4))
    ranking = ensemble.rank((case.inputs(), case.target()))
    small = ensemble.shrink(ranking[:3])
    assert small.ranking.order == (0, 1, 2)
    assert small.ranking.scores == ranking.scores[:3]
    turned = ensemble.shrink(ranking[:3][::-1])
    assert turned.ranking.order == (2, 1, 0)
    x = case.inputs()
    for one in (small, turned):
        assert_close(one.predict(x, best=2).members, ensemble.predict(x, best=2).members)
    assert ensemble.shrink(ranking[1:3]).ranking is None


def test_a_shrunk_ensemble_says_so():
    ensemble = pl.convert(zoo.mlp(), DeepEnsembles(members=4)).shrink([3, 1])
    assert ensemble.conversion.notes[-1] == "shrunk to rows 3, 1 of 4"


@pytest.mark.parametrize("rows", [[], [4], [-1], [0, "1"], [(0, 0)], 0, None])
def test_what_is_no_row_is_refused(rows):
    ensemble = pl.convert(zoo.mlp(), DeepEnsembles(members=4))
    with pytest.raises(InputError, match="rows must be positions from 0 to 3, at least one, got "):
        ensemble.shrink(rows)
