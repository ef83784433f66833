"""Budgets: costs before training equal those after it, and learnt exits never cost more than foreseen."""

from math import inf

import pytest
import torch

from pluribus.comparison.evaluation import measure_costs
from pluribus.methods import SAE, SWAG, DeepEnsembles
from pluribus.report.budget import parse_budget
from pluribus.search.budget import costs_ahead, excess
from tests.search.cases import problem


def test_costs_before_training_are_those_of_the_ensemble(tmp_path):
    ours = problem(tmp_path)
    ensemble = ours.convert(DeepEnsembles(members=3))
    ahead = costs_ahead(ensemble, ours.blind, ours.single)
    assert ahead["parameters_ratio"] == 3
    assert ahead["multiply_adds_ratio"] == 3
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.add_(0.1)
    after = measure_costs(ensemble.eval(), ensemble.freeze(), ours.blind, ours.single, timed=False)
    assert after == ahead


@pytest.mark.slow
def test_learnt_exits_cost_at_most_what_was_foreseen(tmp_path):
    ours = problem(tmp_path)
    ensemble = ours.convert(SAE(inputs=2, exits=1))
    ahead = costs_ahead(ensemble, ours.blind, ours.single)
    logits = ensemble.members.index.logits
    assert logits.detach().abs().max() == 0
    found = []
    for first, second in ((0, 0), (0, 1), (1, 1)):
        with torch.no_grad():
            logits.zero_()
            logits[0, first] = logits[1, second] = 1
        after = measure_costs(ensemble.eval(), ensemble.freeze(), ours.blind, ours.single, timed=False)
        assert after["parameters"] == ahead["parameters"]
        found.append(after["multiply_adds"])
    assert max(found) == ahead["multiply_adds"] > min(found)


def test_method_that_predicts_only_after_training_has_its_parameters(tmp_path):
    ours = problem(tmp_path)
    ahead = costs_ahead(ours.convert(SWAG()), ours.blind, ours.single)
    assert set(ahead) == {"parameters", "parameters_ratio"}


def test_ensemble_with_too_many_parameters_is_not_frozen(tmp_path, monkeypatch):
    """Freezing 200 ensembles to say that a budget is impossible took eleven minutes."""
    ours = problem(tmp_path)
    ensemble = ours.convert(DeepEnsembles(members=3))
    monkeypatch.setattr(type(ensemble), "freeze", lambda self: pytest.fail("it was frozen"))
    ahead = costs_ahead(ensemble, ours.blind, ours.single, parse_budget("parameters<=2x"))
    assert ahead["parameters_ratio"] == 3
    assert excess(ahead, parse_budget("parameters<=2x"))[1] == "parameters 3 ×"


def test_excess_names_what_is_too_much():
    limits = parse_budget("parameters<=1.5x,multiply_adds<=100")
    costs = {"parameters_ratio": 3.0, "multiply_adds": 100.0}
    assert excess(costs, limits) == (pytest.approx(1.0), "parameters 3 ×")
    assert excess({"parameters_ratio": 1.5}, limits) == (0.0, "")
    assert excess({"parameters_ratio": 1.5}, limits, trained=True) == (inf, "multiply-adds not measured")
