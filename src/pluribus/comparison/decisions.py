"""Decisions: what the answers of a run cost, from its stored outcomes, so that costs may change later."""

from dataclasses import fields, replace

import numpy as np

from pluribus.comparison.outcomes import Array
from pluribus.comparison.record import Record
from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.likelihood import Bernoulli
from pluribus.metrics.bootstrap import MOST_SAMPLES, mean_of, percentile_interval
from pluribus.metrics.costs import Costs, cost_per_sample, decide, decide_by_confidence, expected_costs


def check_costs(costs: Costs | None, task: Task) -> None:
    """Raise unless a task has classes that the costs fit; to be called before any training.

    Raises:
        SettingError: numbers are predicted, or `miss` and `alarm` are given for more than two classes.
    """
    if costs is None:
        return
    outcomes = 2 if isinstance(task.likelihood, Bernoulli) else task.classes
    if outcomes is None:
        raise SettingError(f"costs must be of classes, got numbers in the task {task.name}. Leave them out.")
    costs.matrix(outcomes)


def with_costs(record: Record, costs: Costs | None) -> Record:
    """Return a record with what its decisions cost on the test samples; unchanged where it has no classes.

    `decisions` gets the numbers of `expected_costs` and the costs themselves, `intervals` the interval of the
    expected cost, and the outcomes a column `cost`.
    """
    if costs is None or record.outcomes is None or "label" not in record.outcomes.columns:
        return record
    columns = record.outcomes.columns
    answers, outcomes = _answers(columns, costs)
    target = columns["target"].astype(np.int64)
    per_sample = cost_per_sample(answers, target, costs, outcomes)
    given = {one.name: getattr(costs, one.name) for one in fields(costs)}
    prices = {f"cost_{name}": float(value) for name, value in given.items() if value is not None}
    intervals = dict(record.intervals)
    if len(per_sample) <= MOST_SAMPLES:
        intervals["expected_cost"] = percentile_interval(mean_of(per_sample), len(per_sample))
    stored = per_sample.astype(np.float32)
    return replace(
        record,
        decisions=expected_costs(answers, target, costs, outcomes) | prices,
        intervals=intervals,
        outcomes=replace(record.outcomes, columns={**columns, "cost": stored}),
    )


def _answers(columns: dict[str, Array], costs: Costs) -> tuple[Array, int]:
    """Return the answer to each sample, and how many outcomes there are.

    Costs are weighed by probabilities, so the calibrated ones decide; records of earlier versions and of
    ensembles without a calibration have the raw ones alone.
    """
    if "positive" in columns:
        yes = columns.get("calibrated_positive", columns["positive"]).astype(np.float64)
        return decide(np.stack((1 - yes, yes), 1), costs), 2
    labels = columns["label"].astype(np.int64)
    # A class that is neither a target nor an answer costs nothing.
    outcomes = max(3, int(labels.max()) + 1, int(columns["target"].max()) + 1)
    costs.matrix(outcomes)
    sure = columns.get("calibrated_confidence", columns["confidence"]).astype(np.float64)
    return decide_by_confidence(labels, sure, costs), outcomes
