"""Patches: what kept, fewer and fresh draws predict, and what they share."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import InputError, SettingError
from pluribus.mechanisms.running import plan
from pluribus.methods import ECMP, EMP
from tests import zoo
from tests.cases import case_named, seeded

X = torch.randn(10, 6, dtype=torch.float64, generator=seeded(0))
Y = torch.arange(10) % 3
BOTH = pytest.mark.parametrize("method", [EMP, ECMP])
run = plan.ExecutionPlan.run


def network():
    torch.manual_seed(0)
    return zoo.batch_norm_mlp().double()


def test_repeated_draws_run_once_and_count_as_often_as_drawn():
    ensemble = pl.convert(network(), EMP(5, draws=20, perturbation=0.5), pl.Point(), seed=1).eval()
    drawn = [tuple(row) for row in ensemble.members.index.kept.tolist()]
    assert len(ensemble(X)) == len(set(drawn)) == len(ensemble.weights) < 20
    prediction, each = ensemble.predict(X), ensemble(X, members=drawn)
    assert_close(prediction.mean, each.mean(0))
    running = torch.zeros_like(each[0])
    for s, output in enumerate(each, 1):
        running += (output - running) / s  # Algorithm 1, which prints s + 1
    assert_close(running, each.mean(0))


def test_rows_count_by_their_weights_in_the_loss_of_eval_mode():
    ensemble = pl.convert(network(), EMP(5, draws=20, perturbation=0.5, decay=0.0), seed=1).eval()
    drawn = [tuple(row) for row in ensemble.members.index.kept.tolist()]
    losses = pl.Categorical().losses(ensemble(X, members=drawn), Y)
    assert_close(ensemble.loss(X, Y), losses.mean())


@BOTH
def test_regression_has_the_posterior_predictive_of_appendix_b(method):
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2)).double()
    ensemble = pl.convert(model, method(3, draws=8, perturbation=0.5), pl.Gaussian(precision=0.1)).eval()
    prediction, outputs, w = ensemble.predict(X), ensemble(X), ensemble.weights.double()
    target = torch.randn(10, 2, generator=seeded(1), dtype=torch.float64)
    mean = torch.einsum("m,mbt->bt", w, outputs)
    assert_close(prediction.mean, mean)
    assert_close(prediction.variance, torch.einsum("m,mbt->bt", w, outputs**2) - mean**2 + 10)
    density = math.sqrt(0.1 / (2 * math.pi)) * (-0.05 * (target - outputs) ** 2).exp()
    assert_close(prediction.log_prob(target), torch.einsum("m,mbt->bt", w, density).log())
    assert prediction.log_prob(outputs.mean(0)).max() <= -2.0702 + 1e-4  # ½ log(τ/2π)


@BOTH
def test_fewer_draws_are_read_from_one_run(method):
    ensemble = pl.convert(network(), method(3, draws=6, perturbation=0.5), seed=2).eval()
    prediction = ensemble.predict(X)
    for draws in (1, 3, 6):
        nested = prediction.weighted(ensemble.nested_weights(draws))
        if method is EMP:
            rows = [tuple(row) for row in ensemble.members.index.kept[:draws].tolist()]
        else:
            rows = list(range(draws))
        expected = ensemble(X, members=rows).softmax(2).mean(0)
        assert_close(nested.probabilities, expected)
    assert_close(prediction.weighted(ensemble.nested_weights(6)).probabilities, prediction.probabilities)


@BOTH
def test_a_prediction_may_have_fresh_draws(method):
    ensemble = pl.convert(network(), method(3, draws=2, perturbation=0.5)).train()
    torch.manual_seed(4)
    prediction = ensemble.predict(X, draws=30, chunk=4)
    torch.manual_seed(4)
    outputs = ensemble.eval()(X, draws=30)
    assert_close(prediction.members, outputs)  # the same draws for all chunks
    assert_close(prediction.probabilities, outputs.softmax(2).mean(0), check_dtype=False)
    assert len(ensemble.predict(X)) == 10
    ensemble.rank((X, Y))
    with pytest.raises(InputError, match="best= and draws= exclude each other"):
        ensemble.predict(X, draws=3, best=1)
    with pytest.raises(SettingError, match="draws must be at least 1"):
        ensemble.predict(X, draws=0)


def test_what_precedes_the_first_patch_runs_once_for_all_draws():
    case = case_named("residual_cnn")
    x = case.inputs()
    early = pl.convert(case.model(), ECMP(5, draws=100), example=x).eval().explain(x)
    late = pl.convert(case.model(), ECMP(5, "output", draws=100), example=x).eval().explain(x)
    assert early.shared == ("0",)
    assert early.multiply_adds.ratio < 1.2  # the first norm is at the first layer: little is shared
    assert "once for all: 0 (11% of a row's multiply-adds)" in str(early)
    assert late.multiply_adds.ratio > 50
    layers = 6  # with parameters
    assert (early.layer_calls.planned, early.layer_calls.alone) == (1 + 100 * (layers - 1), 100 * layers)
    assert (late.layer_calls.planned, late.layer_calls.alone) == (layers - 1 + 100, 100 * layers)


def test_draws_of_emp_share_their_prefixes():
    case = case_named("residual_cnn")
    x = case.inputs()
    ensemble = pl.convert(case.model(), EMP(5, draws=100, perturbation=0.5), example=x).eval()
    explained = ensemble.explain(x)
    assert explained.rows == len(ensemble.weights) < explained.draws == 100
    assert str(explained).startswith(f"{explained.rows} rows for 100 draws, ")
    assert ensemble.explain(x, members=[3, 4]).draws == 2
    drawn = ensemble.members.index.rows(training=False)
    prefixes = [len({row[:depth] for row in drawn}) for depth in (1, 2, 3)]
    assert [fork.runs for fork in explained.forks] == prefixes
    rows = ensemble(x)
    assert_close(rows[7], ensemble.member(7)(x))


def test_draws_of_ecmp_run_by_a_plan_from_the_first_call(monkeypatch):
    case = case_named("residual_cnn")
    ensemble = pl.convert(case.model(), ECMP(5, "output", draws=7), example=case.inputs()).eval()
    ran = []
    monkeypatch.setattr(plan.ExecutionPlan, "run", lambda *given: ran.append(1) or run(*given))
    outputs = ensemble(case.inputs())
    assert ran
    for row in range(7):
        assert_close(outputs[row], ensemble.member(row)(case.inputs()))
