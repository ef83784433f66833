"""evaluate: complete records in the units of the data, whatever the likelihood."""

import itertools
import time

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.comparison import evaluation
from pluribus.comparison.evaluation import evaluate, latency_ratio
from pluribus.data import diabetes, digits, two_moons
from pluribus.methods import SAE, DeepEnsembles, MCDropout, Single


def test_classification_has_all_sections():
    task = digits(train=60, test=40)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    options = {"example": task.train.x[:2]}
    single = pl.convert(model, Single(), **options)
    one = evaluate(pl.convert(model, MCDropout(draws=2), **options), task, single=single)
    assert len(one.shifted) == 95
    assert {"accuracy", "nll", "ece"} <= one.shifted["fog/3"].keys()
    assert {"auroc_entropy", "fpr95_mutual_information"} <= one.ood["photographs"].keys()
    assert 0.5 <= one.posthoc["conformal_coverage"] <= 1
    assert {"scaled_nll", "scaled_ece", "false_alarms", "temperature"} <= one.posthoc.keys()
    assert {"nll", "scaled_nll"} <= one.shifted["fog/3"].keys()
    assert 0 <= one.ood["photographs"]["auroc_chosen"] <= 1
    assert one.ood_score
    assert one.cost["multiply_adds_ratio"] == 2
    assert one.cost["parameters_ratio"] == 1
    assert one.versions["torch"] == torch.__version__
    assert not evaluate(single, task, shifted=False).shifted
    assert one.outcomes.columns["nll"].mean() == pytest.approx(one.metrics["nll"], rel=1e-5)
    assert one.outcomes.ood["photographs"]["entropy"].shape == (600,)
    first = one.outcomes.gallery.index[0]
    raw = task.scaling.invert(task.test.x)[first, 0]
    assert (one.outcomes.gallery.pixels[0, ..., 0] == (raw * 255).round().numpy()).all()


def calibrated(ensemble, task):
    ensemble.calibrate(task)
    return ensemble


@pytest.mark.parametrize("likelihood", ["gaussian", "point"])
def test_regression_is_measured_in_the_units_of_the_data(likelihood):
    task = diabetes(likelihood=likelihood)
    ensemble = pl.convert(nn.Linear(10, task.outputs), DeepEnsembles(members=2), task.likelihood)
    one = evaluate(ensemble, task)
    mean = task.in_units(ensemble.predict(task.test.x)).mean
    truth = task.target_scaling.invert(task.test.y)
    assert one.metrics["rmse"] == pytest.approx((mean - truth).square().mean().sqrt().item(), rel=1e-5)
    assert one.metrics["rmse"] > 20  # disease progression is counted in tens and hundreds
    low, high = task.in_units(calibrated(ensemble, task).predict(task.test.x)).interval()
    assert one.posthoc["conformal_width"] == pytest.approx((high - low).mean().item(), rel=1e-4)
    assert ("variance_scale" in one.posthoc) == (likelihood == "gaussian")


def test_what_is_kept_is_counted_as_saved_and_what_runs_as_frozen():
    network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 2))
    task = two_moons(train=50)
    ensemble = pl.convert(network, SAE(inputs=2, exits=1, where="1"), example=task.test.x[:2])
    one, x = evaluate(ensemble, task, shifted=False).cost, task.test.x[:1]
    kept, frozen = pl.cost(ensemble, x), pl.cost(ensemble.freeze(), x)
    assert (one["parameters"], one["weight_bytes"]) == (kept.parameters, kept.weight_bytes)
    assert one["multiply_adds"] == frozen.multiply_adds < kept.multiply_adds
    assert frozen.parameters < kept.parameters


def test_records_name_the_ensemble():
    task = two_moons(train=50)
    ensemble = pl.convert(nn.Linear(2, 2), DeepEnsembles(members=2), seed=5)
    one = evaluate(ensemble, task)
    assert (one.method, one.network, one.seed) == (ensemble.method.to_dict(), "Linear", 5)
    assert one.key == evaluate(ensemble, task).key


def test_the_single_network_is_frozen_once(monkeypatch):
    task, frozen = two_moons(train=50), []
    original = pl.Ensemble.freeze
    monkeypatch.setattr(pl.Ensemble, "freeze", lambda self: frozen.append(self) or original(self))
    evaluation._FROZEN_SINGLES.clear()
    for width in (3, 3, 4):
        network = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 2))
        single = pl.convert(network, Single())
        evaluate(pl.convert(network, DeepEnsembles(members=2)), task, single=single, shifted=False)
    assert [one.method.kind() for one in frozen].count("single") == 2


@pytest.fixture
def clock(monkeypatch):
    """The time, in seconds, in a list that a run may add to."""
    now = [0.0]
    monkeypatch.setattr(evaluation.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(evaluation.time, "thread_time", lambda: now[0])
    return now


def test_one_thread_counts_the_time_of_the_processor_alone(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(evaluation.torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(evaluation.time, "thread_time", lambda: now[0])

    def takes(seconds):
        def run(x):
            now[0] += seconds
            # Meanwhile other processes ran.
            time.sleep(1e-3)

        return run

    assert latency_ratio(takes(4.0), takes(1.0), torch.zeros(1)) == 4


def test_the_ratio_of_times_is_the_median_of_ratios_measured_in_turn(clock):
    calls = []

    def takes(name, *seconds):
        several = itertools.cycle(seconds)

        def run(x):
            calls.append(name)
            clock[0] += next(several)

        return run

    ratio = latency_ratio(takes("slow", 3.0), takes("fast", 1.0, 1.0, 100.0), torch.zeros(1))
    assert ratio == pytest.approx(3.0)  # the disturbed ones do not count
    rounds = ["slow", "fast", "fast", "slow"] * (evaluation.TIMINGS // 2)
    assert calls == ["slow", "fast", *rounds]


def test_what_runs_second_is_not_thought_faster(clock):
    """Every other run takes a tenth longer, whichever of two alike it is."""
    longer = itertools.cycle([1.1, 1.0])

    def either():
        def run(x):
            clock[0] += next(longer)

        return run

    assert latency_ratio(either(), either(), torch.zeros(1)) == pytest.approx(1, abs=0.005)


def test_the_single_network_takes_once_the_time_of_itself():
    task = two_moons(train=20, test=20)
    single = pl.convert(nn.Linear(2, 2), Single())
    costs = evaluate(single, task, single=single, shifted=False).cost
    ratios = {name: value for name, value in costs.items() if name.endswith("_ratio")}
    assert ratios == {"parameters_ratio": 1, "multiply_adds_ratio": 1, "latency_ratio": 1}
