"""evaluate: measure the quality, the calibration and the cost of an ensemble."""

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.calibration_record import Calibration
from pluribus.comparison.at_threshold import at_threshold
from pluribus.comparison.calibrated import (
    calibration_for,
    measure_calibration,
    measure_strangers,
    scaled_metrics,
)
from pluribus.comparison.decisions import check_costs, with_costs
from pluribus.comparison.gallery_candidates import Candidates
from pluribus.comparison.outcomes import read_outcomes, stored_ood_scores
from pluribus.comparison.record import Record, key_of
from pluribus.data.batch import Batch
from pluribus.data.split import Split
from pluribus.data.task import Task, check_task
from pluribus.ensemble import Ensemble
from pluribus.fingerprint import digest
from pluribus.mechanisms.graph.cost import Cost, cost
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.frozen import Frozen
from pluribus.methods.single import Single
from pluribus.metrics import METRICS, Costs, bootstrap_intervals, evaluate_ood
from pluribus.metrics.bootstrap import Interval
from pluribus.metrics.tally import Tally
from pluribus.metrics.threshold import has_two_outcomes
from pluribus.prediction import Prediction
from pluribus.training.settings import Training
from pluribus.training.split_prediction import CHUNK, tally_split
from pluribus.version import VERSION

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
    """Measure a trained ensemble on the test data of a task, raw and calibrated.

    Args:
        ensemble: The ensemble; it is put into eval mode. Without a calibration one is fitted on the
            validation data, and not kept.
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
    calibration = _in_units(calibration_for(ensemble, task), task)
    candidates = Candidates(task.scaling)
    test = measure_split(ensemble, task, task.test, on_batch=candidates.add)
    prediction, target = test.prediction, test.target
    calibrated = prediction.calibrated(calibration)
    # Most of the time goes into shifted sets, and the frozen ensemble runs them faster.
    frozen = ensemble.freeze()
    outcomes = read_outcomes(prediction, target, None if calibration is None else calibrated)
    ood = {}
    for name, x in task.ood.items():
        out = measure_split(ensemble, task, Split.of_inputs(x)).prediction
        ood[name] = evaluate_ood(prediction, out) | measure_strangers(calibrated, out.calibrated(calibration))
        outcomes.ood[name] = stored_ood_scores(out, out.calibrated(calibration))
    moved = {}
    if shifted:
        # Shifted splits have targets of their own, and may have fewer samples than the test data.
        for (kind, severity), split in task.shifted.items():
            moved[f"{kind}/{severity}"] = _scores(ensemble, frozen, task, split, calibration)
    rates, ends = _at_threshold(ensemble, task, prediction, target)
    settings = (ensemble.method.to_dict(), repr(task), network or ensemble.network_name, ensemble.seed)
    trained = {} if training is None else training.to_dict()
    measured = Record(
        key_of(*settings, trained, shifted, task.fingerprint, digest(ensemble, task.train.example().inputs)),
        *settings,
        trained,
        data=task.fingerprint,
        metrics=test.metrics(),
        shifted=moved,
        ood=ood,
        posthoc=measure_calibration(calibrated, target) | rates,
        ood_score=calibration.score if calibration else "",
        # Rates name the class to be found, of which there is one among two.
        class_names=list(task.class_names) if len(task.class_names) == 2 else [],
        cost=measure_costs(ensemble, frozen, task, single),
        versions=versions(),
        seconds={"evaluation": time.perf_counter() - start},
        intervals=bootstrap_intervals(prediction, target) | ends,
        outcomes=replace(outcomes, gallery=candidates.gallery(task.class_names), maps=candidates.maps()),
    )
    return with_costs(measured, costs)


def versions() -> dict[str, str]:
    """Return the versions of Pluribus, torch and Python."""
    return {"pluribus": VERSION, "torch": torch.__version__, "python": platform.python_version()}


def latency_ratio(module: nn.Module, single: nn.Module, x: Any) -> float:
    """Return the time of `module` on `x` over that of `single`, the median of several rounds.

    On a CPU with one thread, as in the workers of `compare`, it is the time that the processor spent. It does
    not count the time in which other processes ran.
    """
    inputs = Inputs.of(x)
    on_gpu = any(tensor.is_cuda for tensor in inputs.tensors())
    alone = not on_gpu and torch.get_num_threads() == 1
    clock = time.thread_time if alone else time.perf_counter

    def seconds(run: Callable[..., object]) -> float:
        start = clock()
        run(*inputs.args, **inputs.keywords)
        if on_gpu:
            torch.cuda.synchronize()
        return clock() - start

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


def _in_units(calibration: Calibration | None, task: Task) -> Calibration | None:
    """Return a calibration, fitted in the units of the network, for predictions in those of the data."""
    return None if calibration is None else replace(calibration, unit=task.target_scaling.std)


def measure_split(
    ensemble: Ensemble,
    task: Task,
    split: Split,
    runner: Frozen | None = None,
    on_batch: Callable[[Batch, Prediction, Tensor | None], None] | None = None,
) -> Tally:
    """Return the raw predictions and targets of a split in the units of the data."""

    def in_units(prediction: Prediction, target: Tensor | None) -> tuple[Prediction, Tensor | None]:
        if target is not None and target.is_floating_point():
            target = task.target_scaling.invert(target)
        return task.in_units(prediction.raw), target

    return tally_split(ensemble, split, CHUNK, runner, in_units, on_batch)


def _scores(
    ensemble: Ensemble, frozen: Frozen, task: Task, split: Split, calibration: Calibration | None
) -> dict[str, float]:
    """Return some metrics on shifted data, raw and, as `scaled_<name>`, calibrated."""
    # Streamed samples may differ in size, which a frozen ensemble refuses.
    tally = measure_split(ensemble, task, split, None if split.streams else frozen)
    metrics = (METRICS[name] for name in SHIFT_METRICS)
    found = {metric.name: tally.compute(metric) for metric in metrics if metric.suits(tally.prediction)}
    if calibration is None:
        return found
    return found | scaled_metrics(tally.prediction.calibrated(calibration), tally.target)


def _at_threshold(
    ensemble: Ensemble, task: Task, test: Prediction, target: Tensor
) -> tuple[dict[str, float], dict[str, Interval]]:
    """Return rates of the test data at a threshold of the validation data, and their intervals."""
    # Predicting validation data takes time, and other predictions have no threshold.
    if not has_two_outcomes(test) or not len(task.validation):
        return {}, {}
    validation = measure_split(ensemble, task, task.validation)
    return at_threshold(validation.prediction, validation.target, test, target)


def measure_costs(
    ensemble: Ensemble, frozen: Frozen, task: Task, single: Ensemble | None, timed: bool = True
) -> dict[str, float]:
    """Return the sizes of the saved ensemble, and the work of a prediction of the frozen one.

    Args:
        ensemble: As it is saved.
        frozen: As it predicts.
        task: Its inputs are those of a prediction.
        single: The network alone, for ratios; None leaves them out.
        timed: Measure the time of a prediction too.
    """
    forward = ensemble.members.code.forward
    several = accepted_by(_timed_inputs(task), forward).to(ensemble.device)
    one = several.take(slice(0, 1))
    stored, run = _cost(ensemble, one), _cost(frozen, one)
    found: dict[str, float] = {
        "parameters": stored.parameters,
        "multiply_adds": run.multiply_adds,
        "weight_bytes": stored.weight_bytes,
        "peak_activation_bytes": run.peak_activation_bytes,
    }
    if single is None:
        return found
    base = _cost(single.eval(), one)
    found["parameters_ratio"] = stored.parameters / base.parameters
    found["multiply_adds_ratio"] = run.multiply_adds / base.multiply_adds
    if not timed:
        return found
    # The latency of the single network over itself is 1 by definition. Measured, it would be noise, and a
    # budget of 1 × would sometimes exclude it.
    found["latency_ratio"] = 1.0
    if not isinstance(ensemble.method, Single):
        found["latency_ratio"] = latency_ratio(frozen, _frozen_once(single, base), several)
    return found


def _timed_inputs(task: Task) -> Inputs:
    """Return a batch of test inputs; of a stream, the first two training inputs again and again."""
    if not task.test.streams:
        return task.test.example(LATENCY_BATCH).inputs
    # A frozen ensemble takes inputs of the sizes of its example; other texts would be of other lengths.
    two = task.train.example(2).inputs
    return Inputs.joined([two] * (LATENCY_BATCH // two.batch))


def _cost(module: nn.Module, inputs: Inputs) -> Cost:
    return cost(module, *inputs.args, **inputs.keywords)


def _frozen_once(single: Ensemble, base: Cost) -> Frozen:
    """Return a frozen single network with the times of this one: freezing takes longer than timing."""
    shapes = tuple((name, tensor.shape, tensor.dtype) for name, tensor in single.state_dict().items())
    key = (single.network_name, str(single.device), base, shapes)
    if key not in _FROZEN_SINGLES:
        _FROZEN_SINGLES.clear()
        _FROZEN_SINGLES[key] = single.freeze()
    return _FROZEN_SINGLES[key]
