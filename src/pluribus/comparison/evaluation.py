"""evaluate: measure the quality, the calibration and the cost of an ensemble."""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from pluribus.calibration import ConformalIntervals, ConformalSets, fit_temperature, with_temperature
from pluribus.comparison.at_threshold import at_threshold
from pluribus.comparison.decisions import check_costs, with_costs
from pluribus.comparison.maps import make_maps
from pluribus.comparison.outcomes import make_gallery, read_outcomes, stored_ood_scores
from pluribus.comparison.record import Record, key_of
from pluribus.data.task import Split, Task, check_task
from pluribus.ensemble import Ensemble
from pluribus.mechanisms.graph.cost import Cost, cost
from pluribus.mechanisms.running.frozen import Frozen
from pluribus.methods.single import Single
from pluribus.metrics import METRICS, Costs, bootstrap_intervals, evaluate_all, evaluate_ood
from pluribus.metrics.bootstrap import Interval
from pluribus.prediction import CategoricalPrediction, GaussianPrediction, Prediction
from pluribus.training.settings import Training
from pluribus.version import VERSION

CHUNK = 512
SHIFT_METRICS = ("accuracy", "nll", "ece", "brier", "rmse", "gaussian_nll")
TIMINGS = 8
"""Rounds of measuring two networks; even, so that each of them goes first in half of the rounds."""
LATENCY_BATCH = 32

_FROZEN_SINGLES: dict[tuple[object, ...], Frozen] = {}
"""The single network of the last comparison, frozen. Its times are those of any weights."""


def evaluate(
    ensemble: Ensemble,
    task: Task,
    *,
    single: Ensemble | None = None,
    shifted: bool = True,
    network: str | None = None,
    training: Training | None = None,
    costs: Costs | None = None,
) -> Record:
    """Measure a trained ensemble on the test data of a task.

    Args:
        ensemble: The ensemble; it is put into eval mode.
        task: The data. Errors of regression are in the units of the data.
        single: The same network as an ensemble of one, for ratios of costs.
        shifted: Measure on shifted data too, which takes longest.
        network: Name of the network in the record; by default its class.
        training: Settings of its training. They are part of the key of the record.
        costs: What wrong answers and deferring cost, for the record's `decisions`.

    Raises:
        SettingError: the costs do not fit the task.

    Example:
        >>> from pluribus.data import two_moons
        >>> ensemble = pluribus.convert(torch.nn.Linear(2, 2), DeepEnsembles(members=2))
        >>> sorted(evaluate(ensemble, two_moons(train=50)).cost)
        ['multiply_adds', 'parameters', 'peak_activation_bytes', 'weight_bytes']
    """
    check_task(task)
    check_costs(costs, task)
    ensemble.eval()
    start = time.perf_counter()
    prediction = _predict(ensemble, task, task.test.x)
    target = _in_units(task, task.test.y).to(prediction.members.device)
    # Most of the time goes into shifted sets, and the frozen ensemble runs them faster.
    frozen = ensemble.freeze()
    outcomes = read_outcomes(prediction, target)
    ood = {}
    for name, x in task.ood.items():
        out = _predict(ensemble, task, x)
        ood[name] = evaluate_ood(prediction, out)
        outcomes.ood[name] = stored_ood_scores(out)
    moved = {}
    if shifted:
        # Shifted splits have targets of their own, and may have fewer samples than the test data.
        for (kind, severity), split in task.shifted.items():
            moved[f"{kind}/{severity}"] = _scores(frozen, task, split)
    pictures = task.scaling.invert(task.test.x)
    gallery = make_gallery(prediction, target, pictures, task.class_names)
    maps = make_maps(prediction, target, pictures)
    posthoc, ends = _posthoc(ensemble, task, prediction, target)
    settings = (ensemble.method.to_dict(), repr(task), network or ensemble.network_name, ensemble.seed)
    trained = {} if training is None else training.to_dict()
    measured = Record(
        key_of(*settings, trained, shifted),
        *settings,
        trained,
        metrics=evaluate_all(prediction, target),
        shifted=moved,
        ood=ood,
        posthoc=posthoc,
        cost=_costs(ensemble, frozen, task, single),
        versions=versions(),
        seconds={"evaluation": time.perf_counter() - start},
        intervals=bootstrap_intervals(prediction, target) | ends,
        outcomes=replace(outcomes, gallery=gallery, maps=maps),
    )
    return with_costs(measured, costs)


def versions() -> dict[str, str]:
    """Return the versions of Pluribus, torch and Python."""
    return {"pluribus": VERSION, "torch": torch.__version__, "python": platform.python_version()}


def latency_ratio(module: nn.Module, single: nn.Module, x: Tensor) -> float:
    """Return the time of `module` on `x` over that of `single`, the median of several rounds."""

    def seconds(run: Callable[[Tensor], object]) -> float:
        start = time.perf_counter()
        run(x)
        if x.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - start

    # Warm up: first calls allocate memory and choose kernels.
    seconds(module)
    seconds(single)
    ratios = []
    for turn in range(TIMINGS):
        # They take turns in going first, because the second one meets warm caches and other clock rates.
        order = (single, module) if turn % 2 else (module, single)
        taken = {run: seconds(run) for run in order}
        ratios.append(taken[module] / taken[single])
    return statistics.median(ratios)


def _predict(ensemble: Ensemble | Frozen, task: Task, x: Tensor) -> Prediction:
    return task.in_units(ensemble.predict(x.to(ensemble.weights.device), chunk=CHUNK).raw)


def _in_units(task: Task, y: Tensor) -> Tensor:
    return task.target_scaling.invert(y) if y.is_floating_point() else y


def _scores(ensemble: Frozen, task: Task, split: Split) -> dict[str, float]:
    prediction = _predict(ensemble, task, split.x)
    target = _in_units(task, split.y).to(prediction.members.device)
    metrics = (METRICS[name] for name in SHIFT_METRICS)
    return {metric.name: metric(prediction, target) for metric in metrics if metric.suits(prediction)}


def _posthoc(
    ensemble: Ensemble, task: Task, test: Prediction, target: Tensor
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return metrics of the test data after corrections fitted on the validation data, and intervals."""
    if not len(task.validation):
        return {}, {}
    fitted = _predict(ensemble, task, task.validation.x)
    truth = _in_units(task, task.validation.y).to(target.device)
    rates, intervals = at_threshold(fitted, truth, test, target)
    return _corrected(fitted, truth, test, target) | rates, intervals


def _corrected(fitted: Prediction, truth: Tensor, test: Prediction, target: Tensor) -> dict[str, float]:
    """Return metrics of the test data after calibration on the validation data."""
    if isinstance(test, CategoricalPrediction) and isinstance(fitted, CategoricalPrediction):
        temperature = fit_temperature(fitted, truth)
        scaled = with_temperature(test, temperature)
        sets = ConformalSets.fit(fitted, truth)
        return {
            "temperature": temperature,
            "scaled_nll": METRICS["nll"](scaled, target),
            "scaled_ece": METRICS["ece"](scaled, target),
            "scaled_brier": METRICS["brier"](scaled, target),
            "conformal_level": sets.level,
            "conformal_coverage": sets.coverage(test, target),
            "conformal_size": sets.size(test),
        }
    if isinstance(test, GaussianPrediction) and isinstance(fitted, GaussianPrediction):
        intervals = ConformalIntervals.fit(fitted, truth)
        return {
            "conformal_level": intervals.level,
            "conformal_coverage": intervals.coverage(test, target),
            "conformal_width": intervals.width(test),
        }
    return {}


def _costs(ensemble: Ensemble, frozen: Frozen, task: Task, single: Ensemble | None) -> dict[str, float]:
    """Return the sizes of the saved ensemble, and the work of a prediction of the frozen one."""
    x = task.test.x.to(ensemble.device)
    stored, run = cost(ensemble, x[:1]), cost(frozen, x[:1])
    found: dict[str, float] = {
        "parameters": stored.parameters,
        "multiply_adds": run.multiply_adds,
        "weight_bytes": stored.weight_bytes,
        "peak_activation_bytes": run.peak_activation_bytes,
    }
    if single is None:
        return found
    base = cost(single.eval(), x[:1])
    found["parameters_ratio"] = stored.parameters / base.parameters
    found["multiply_adds_ratio"] = run.multiply_adds / base.multiply_adds
    # The latency of the single network over itself is 1 by definition. Measured, it would be noise, and a
    # budget of 1 × would sometimes exclude it.
    found["latency_ratio"] = 1.0
    if not isinstance(ensemble.method, Single):
        found["latency_ratio"] = latency_ratio(frozen, _frozen_once(single, base), x[:LATENCY_BATCH])
    return found


def _frozen_once(single: Ensemble, base: Cost) -> Frozen:
    """Return a frozen single network with the times of this one: freezing takes longer than timing."""
    shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in single.state_dict().items())
    key = (single.network_name, str(single.device), base, shapes)
    if key not in _FROZEN_SINGLES:
        _FROZEN_SINGLES.clear()
        _FROZEN_SINGLES[key] = single.freeze()
    return _FROZEN_SINGLES[key]
