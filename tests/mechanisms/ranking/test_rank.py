"""Ranking: greedy, nested, equal to evaluating every set anew; budgets; members that share layers."""

import itertools
import json

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import pluribus as pl
from pluribus.errors import InputError
from pluribus.mechanisms.graph.cost import work_by_layer
from pluribus.mechanisms.members.index import share_among
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.ranking.rank import Ranking, Work, per_work, rank_members
from pluribus.methods import (
    EMP,
    BatchEnsemble,
    DeepEnsembles,
    LayerEnsembles,
    MCDropout,
    PackedEnsembles,
    Single,
)
from pluribus.metrics import METRICS
from tests import zoo
from tests.cases import seeded
from tests.reference import ranking as reference

MEMBERS, SAMPLES = 6, 20
LIKELIHOODS = {
    "categorical": (pl.Categorical(), ("nll", "brier", "accuracy")),
    "bernoulli": (pl.Bernoulli(), ("nll", "brier", "accuracy")),
    "gaussian": (pl.Gaussian(), ("nll", "gaussian_nll", "log_predictive_density", "rmse", "mae", "kl")),
    "point": (pl.Point(), ("rmse", "mae", "kl")),
}


def normal(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=seeded(seed))


def problem(kind, seed, metric=""):
    """Outputs of members that are partly right, and targets."""
    y = normal(SAMPLES, seed=seed)
    noise = normal(MEMBERS, SAMPLES, 2, seed=seed + 1)
    if metric == "kl":
        target = torch.stack((y, normal(SAMPLES, seed=seed + 2).abs()), -1)
    else:
        target = y if kind in ("gaussian", "point") else (y > 0).long()
    if kind == "categorical":
        return torch.stack((-y, y), -1) + noise, target
    if kind == "gaussian":
        return torch.stack((y, y), -1) + noise, target[:, None] if metric != "kl" else target
    return y + noise[..., 0], target


def on_data():
    return normal(40, 6), torch.arange(40) % 3


@pytest.mark.parametrize("metric", ["nll", "brier"])
def test_scores_are_those_of_predictions_by_the_members_weights(metric):
    (outputs, target), weights = problem("categorical", 0), torch.tensor([0.0, 0.5, 0.1, 0.0, 0.3, 0.1])
    prediction = pl.Categorical().prediction(outputs, weights.double())
    ranking = rank_members(prediction, target, metric)
    for size, score in enumerate(ranking.scores, 1):
        rows = list(ranking[:size])
        among = share_among(weights.double(), rows)
        some = pl.Categorical().prediction(outputs[rows], among)
        assert METRICS[metric](some, target) == pytest.approx(score, rel=1e-9)


@pytest.mark.parametrize(
    ("kind", "metric"), [(kind, metric) for kind, (_, names) in LIKELIHOODS.items() for metric in names]
)
@pytest.mark.parametrize("seed", [0, 10, 20])
def test_it_is_what_evaluating_every_set_anew_gives(kind, metric, seed):
    likelihood, (outputs, target) = LIKELIHOODS[kind][0], problem(kind, seed, metric)
    order, scores = reference.rank(likelihood, outputs, target, metric)
    found = rank_members(likelihood.prediction(outputs), target, metric)
    assert list(found) == order
    assert_close(list(found.scores), scores)


@pytest.mark.parametrize(
    ("kind", "metric"), [(kind, metric) for kind, (_, names) in LIKELIHOODS.items() for metric in names]
)
def test_members_count_by_their_weights(kind, metric):
    likelihood, (outputs, target) = LIKELIHOODS[kind][0], problem(kind, 0, metric)
    counts = torch.arange(len(outputs)) % 3 + 1
    order, scores = reference.rank(likelihood, outputs, target, metric, counts)
    found = rank_members(likelihood.prediction(outputs, counts / counts.sum()), target, metric)
    assert list(found) == order
    assert_close(list(found.scores), scores, rtol=1e-6, atol=1e-6)


def test_dense_targets_leave_out_what_is_ignored():
    outputs = normal(4, 3, 2, 5)
    target = torch.randint(2, (3, 5), generator=seeded(1))
    target[0, :4] = -100
    order, scores = reference.rank(pl.Categorical(), outputs, target, "nll")
    found = rank_members(pl.Categorical().prediction(outputs), target, "nll")
    assert list(found) == order
    assert_close(list(found.scores), scores)


def test_the_first_is_the_best_single_member_and_the_last_set_is_all():
    outputs, target = problem("categorical", 0)
    found = rank_members(pl.Categorical().prediction(outputs), target, "nll")
    singles = [reference.quality(pl.Categorical(), outputs[[i]], target, "nll") for i in range(MEMBERS)]
    assert found[0] == singles.index(min(singles))
    assert sorted(found) == list(range(MEMBERS))
    assert_close(found.scores[-1], reference.quality(pl.Categorical(), outputs, target, "nll"))


def test_of_equal_members_the_first_wins():
    outputs, target = problem("categorical", 0)
    twins = rank_members(pl.Categorical().prediction(outputs[[3, 3, 3, 3]]), target, "accuracy")
    assert twins.order == (0, 1, 2, 3)
    doubled = rank_members(pl.Categorical().prediction(outputs[[2, 1, 1, 2]]), target, "nll")
    assert doubled[0] == min(doubled[0], 3 - doubled[0])


def test_a_sure_and_wrong_member_is_last_and_its_surprise_is_finite():
    outputs = torch.tensor([[[0.0, 2000.0]], [[0.0, 2.0]], [[0.0, -1.0]]], dtype=torch.float64)
    found = rank_members(pl.Categorical().prediction(outputs), torch.tensor([0]), "nll")
    assert found.order == (2, 1, 0)
    alone = rank_members(pl.Categorical().prediction(outputs[:1]), torch.tensor([0]), "nll")
    assert alone.scores == (2000.0,)


def test_the_best_size_is_where_the_scores_are_best_and_the_fewest_of_equal_ones():
    assert Ranking((0, 1, 2, 3), (0.5, 0.3, 0.3, 0.4), "nll").best == 2
    assert Ranking((0, 1, 2), (0.5, 0.7, 0.6), "accuracy").best == 2
    ranking = Ranking((2, 0, 1), (0.5, 0.3, 0.4), "nll")
    assert (len(ranking), ranking[0], ranking[:2], list(ranking)) == (3, 2, (2, 0), [2, 0, 1])


@pytest.mark.parametrize(
    "method",
    [
        *(Single(), DeepEnsembles(3), PackedEnsembles(3), BatchEnsemble(3), MCDropout(rate=0.3, draws=4)),
        LayerEnsembles(options=2, draws=5),
        EMP(2, "*", draws=7, start="fresh", probabilities=(0.8, 0.2)),  # rows of different weights
    ],
    ids=str,
)
@pytest.mark.parametrize("per_multiply_add", [False, True])
def test_every_method_is_ranked_and_predicts_within_a_budget(method, per_multiply_add):
    data = on_data()
    ensemble = pl.convert(zoo.mlp().double(), method, example=data[0])
    ranking = ensemble.rank(data, "brier", per_multiply_add=per_multiply_add)
    assert ensemble.ranking is ranking
    assert sorted(ranking) == list(range(len(ensemble.weights)))
    outputs = ensemble.eval()(data[0])
    for size, score in enumerate(ranking.scores, 1):
        prediction = ensemble.predict(data[0], best=size)
        assert_close(prediction.members, outputs[list(ranking[:size])], rtol=0, atol=0)
        assert_close(pl.metrics.brier(prediction, data[1]), score)


def test_a_loader_ranks_as_its_tensors_do():
    x, y = on_data()
    ensemble = pl.convert(zoo.mlp().double(), DeepEnsembles(5))
    whole = ensemble.rank((x, y))
    batches = ensemble.rank(DataLoader(TensorDataset(x, y), batch_size=7), chunk=3)
    assert batches.order == whole.order
    assert_close(batches.scores, whole.scores)


def test_several_and_named_inputs_are_told_from_targets():
    x = (normal(12, 6), normal(12, 4, seed=1))
    y = torch.arange(12) % 3
    ensemble = pl.convert(zoo.TwoInputs().double(), DeepEnsembles(3))
    assert ensemble.rank((x, y)) == ensemble.rank([(*x, y)]) == ensemble.rank([(x, y)])
    named = {"image": normal(12, 1, 6, 6), "age": normal(12, 1, seed=1)}
    ensemble = pl.convert(zoo.Keywords().double(), DeepEnsembles(3), example=named)
    assert ensemble.rank((named, y)) == ensemble.rank([{**named, "labels": y}])


def test_a_budget_needs_a_ranking_and_members():
    x, y = on_data()
    ensemble = pl.convert(zoo.mlp().double(), DeepEnsembles(3))
    with pytest.raises(InputError, match=r"needs ranked members, got none\. Call rank"):
        ensemble.predict(x, best=2)
    ensemble.rank((x, y))
    with pytest.raises(InputError, match="best must be at most 3, the number of members, got 4"):
        ensemble.predict(x, best=4)
    with pytest.raises(pl.SettingError, match="best must be at least 1"):
        ensemble.predict(x, best=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([torch.zeros(3, 6), torch.zeros(3)], r"a batch must be inputs and targets, got a tensor"),
        (torch.zeros(3, 6), r"data must be \(x, y\) or a loader of such batches, got Tensor"),
        ((torch.zeros(3, 6),), r"data must be \(x, y\) or a loader of such batches, got tuple"),
        ([], "at least one batch, got none"),
        ([(torch.zeros(3, 6), torch.zeros(2))], r"targets must be a tensor for 3 samples, got \(2,\)"),
        ([{"input": torch.zeros(3, 6)}], "targets must be a tensor for 3 samples, got NoneType"),
    ],
)
def test_data_without_targets_is_refused(data, message):
    with pytest.raises(InputError, match=message):
        pl.convert(zoo.mlp(), DeepEnsembles(2)).rank(data)


def test_a_metric_that_does_not_suit_is_refused_with_those_that_do():
    ensemble = pl.convert(zoo.mlp(), DeepEnsembles(2))
    with pytest.raises(InputError, match=r"ranked by one of nll, brier, accuracy, got 'rmse'"):
        ensemble.rank((torch.zeros(3, 6), torch.zeros(3).long()), "rmse")


@pytest.mark.parametrize("given", [torch.zeros(3), torch.zeros(3, 3), -torch.ones(3, 2)])
def test_a_reference_must_be_means_and_deviations(given):
    ensemble = pl.convert(nn.Linear(6, 1), DeepEnsembles(2), "point")
    with pytest.raises(InputError, match="a reference must be means and standard deviations"):
        ensemble.rank((torch.zeros(3, 6), given), "kl")


def test_work_is_told_by_layer_in_the_order_they_run():
    work = work_by_layer(zoo.mlp(), Inputs((torch.zeros(2, 6),)))
    held = [sorted(names) for names, _ in work]
    weights = [p for n, p in zoo.mlp().named_parameters() if n.endswith("weight")]
    assert [count for _, count in work] == [2 * weight.numel() for weight in weights]
    assert all(set(a) < set(b) for a, b in itertools.pairwise(held))
    assert len(held[-1]) == len(list(zoo.mlp().parameters()))


def test_a_row_adds_the_layers_from_the_first_choice_that_is_new():
    stretches = [(frozenset("a"), 100), (frozenset("ab"), 10), (frozenset("abc"), 1)]
    rows = [dict(zip("abc", row, strict=True)) for row in [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]]
    work = Work(stretches, rows)
    assert work.added().tolist() == [111, 111, 111, 111]
    work.add(0)
    assert work.added().tolist() == [0, 1, 11, 111]


def test_gains_count_for_each_multiply_add_and_losses_cost_more_with_each():
    gain, added = torch.tensor([2.0, 1.0, -1.0, -1.0]), torch.tensor([4.0, 1.0, 4.0, 1.0])
    assert per_work(gain, added).tolist() == [0.5, 1.0, -4.0, -1.0]


def test_with_a_cost_members_that_share_layers_come_first():
    x, y = on_data()
    ensemble = pl.convert(zoo.mlp().double(), LayerEnsembles(options=4, prior_scale=0.0), seed=1)
    plain = ensemble.rank((x, y))
    cheap = ensemble.rank((x, y), per_multiply_add=True)
    assert cheap[0] == plain[0]
    kept = ensemble.members.index.kept

    def prefixes(order):
        rows = [tuple(kept[i].tolist()) for i in order]
        return len({row[: depth + 1] for row in rows for depth in range(len(row))})

    assert prefixes(cheap[:6]) < prefixes(plain[:6])


def test_a_ranking_is_kept_in_copies_and_files(tmp_path):
    x, y = on_data()
    model = zoo.mlp().double()
    ensemble = pl.convert(model, DeepEnsembles(4))
    ranking = ensemble.rank((x, y))
    ensemble.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", model)
    assert loaded.ranking == ranking
    assert_close(loaded.predict(x, best=2).members, ensemble.predict(x, best=2).members, rtol=0, atol=0)


@pytest.mark.parametrize("broken", [{"ranking": [0, 1]}, {"ranking": {"order": [0]}}, {"shrunk_to": 3}])
def test_a_file_with_a_broken_ranking_is_refused(broken, tmp_path):
    pl.convert(zoo.mlp(), DeepEnsembles(2)).save(tmp_path / "run")
    file = tmp_path / "run" / "ensemble.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | broken))
    with pytest.raises(pl.CheckpointError, match=r"is damaged or foreign: field (ranking|shrunk_to)"):
        pl.load(tmp_path / "run", zoo.mlp())
