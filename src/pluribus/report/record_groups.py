"""The numbers of one record in groups, each with its interval and its meaning."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pluribus.comparison.at_threshold import PREFIX
from pluribus.comparison.record import Record
from pluribus.metrics import METRICS
from pluribus.metrics.threshold import rates_in_words, two_names

GROUPS = {
    "scoring": "Quality",
    "discrimination": "Quality",
    "segmentation": "Quality",
    "regression": "Quality",
    "calibration": "Calibration: can its confidence be trusted?",
    "selective": "Selective prediction: does it know its mistakes?",
    "diversity": "Diversity of the members",
}
"""Title of a group by the file of its metrics, in the order of the table."""
POSTHOC = {
    "temperature": "Above 1, the ensemble was too sure; below 1, too careful.",
    "variance_scale": "Above 1, the predicted variances were too small; below 1, too large.",
    "scaled_nll": "NLL after calibration.",
    "scaled_ece": "ECE after calibration.",
    "scaled_brier": "Brier score after calibration.",
    "scaled_gaussian_nll": "Gaussian NLL after calibration.",
    "scaled_crps": "CRPS after calibration.",
    "scaled_coverage_gap_95": "Coverage gap of 95 % intervals after calibration.",
    "conformal_level": "Share of samples that conformal sets or intervals should hold.",
    "conformal_coverage": "Share of test samples that they hold.",
    "conformal_size": "Classes in a set on average.",
    "conformal_width": "Width of an interval on average.",
    "false_alarm": "Share of test samples that should be flagged as strange.",
    "false_alarms": "Share of test samples that are.",
}
CHOSEN = {"auroc_chosen": "How often such data look stranger than test data, by the score that was chosen."}
COSTS = {
    "parameters": "Parameters of the ensemble as it is saved.",
    "multiply_adds": "Multiply-adds of a prediction of one sample.",
    "weight_bytes": "Bytes of the saved weights.",
    "peak_activation_bytes": "Most bytes of activations at once, of one sample.",
    "parameters_ratio": "Parameters over those of the single network.",
    "multiply_adds_ratio": "Multiply-adds over those of the single network.",
    "latency_ratio": "Time of a batch of 32 over that of the single network, both frozen.",
    "train_multiply_adds": "Multiply-adds of all forward passes of the training.",
    "train_multiply_adds_ratio": "These over those of the single network.",
}
DECISIONS = {
    "expected_cost": "Mean cost of a decision on test data.",
    "cost_of_one_answer": "Mean cost of the best single answer for all samples, or of deferring all.",
    "deferred": "Share of samples that are deferred.",
    "missed": "Share of samples of class {yes} that are answered {no}.",
    "false_alarms": "Share of samples of class {no} that are answered {yes}.",
    "wrong": "Share of samples with a wrong answer.",
}


@dataclass(frozen=True)
class Line:
    """A number: its name in the record, its value, its interval if it has one, and its meaning."""

    name: str
    value: float
    interval: tuple[float, float] | None
    meaning: str


def grouped(record: Record) -> dict[str, list[Line]]:
    """Return the numbers of a record in groups, in the order of the table; empty groups are left out."""
    groups: dict[str, list[Line]] = {}
    for name, title in _metric_groups(record):
        lines = groups.setdefault(title, [])
        lines.append(_line(record, name, record.metrics[name], METRICS[name].explanation))
    groups["At the threshold that was best on validation data"] = list(_rates(record))
    no, yes = two_names(record.class_names)
    decisions = {name: meaning.format(no=no, yes=yes) for name, meaning in DECISIONS.items()}
    groups["Costs of decisions"] = _listed(record, _without(record.decisions, "cost_", decisions), decisions)
    corrected = _without(record.posthoc, PREFIX, {})
    groups["After corrections fitted on validation data"] = _listed(record, corrected, POSTHOC)
    for kind, scores in record.ood.items():
        found = {name: value for name, value in scores.items() if name.startswith("auroc_")}
        meanings = CHOSEN | {name: METRICS[name].explanation for name in found if name in METRICS}
        groups[f"Out of distribution: {kind}"] = _listed(record, found, meanings)
    groups["Shifted data, averaged over kinds and severities"] = list(_shifted(record))
    groups["Cost"] = _listed(record, record.cost, COSTS)
    return {title: lines for title, lines in groups.items() if lines}


def _without(numbers: dict[str, float], prefix: str, kept: Collection[str]) -> dict[str, float]:
    """Return the numbers whose names do not begin with a prefix, and those to be kept."""
    return {name: value for name, value in numbers.items() if name in kept or not name.startswith(prefix)}


def _line(record: Record, name: str, value: float, meaning: str) -> Line:
    return Line(name, float(value), record.intervals.get(name), meaning)


def _metric_groups(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the metrics of a record with the title of their group, group by group."""
    homes = {}
    for name in record.metrics:
        if name in METRICS:
            homes[name] = _home(name)
    for file, title in GROUPS.items():
        for name, home in homes.items():
            if home == file:
                yield name, title


def _home(name: str) -> str:
    """Return the file of a metric; a function with some arguments filled in is that of the function."""
    function = METRICS[name].function
    function = getattr(function, "func", function)
    return function.__module__.rpartition(".")[2]


def _rates(record: Record) -> Iterator[Line]:
    if PREFIX in record.posthoc:
        _, yes = two_names(record.class_names)
        meaning = f"Probability of class {yes} from which on it is answered."
        yield _line(record, PREFIX, record.posthoc[PREFIX], meaning)
    for name, meaning in rates_in_words(record.class_names).items():
        key = f"{PREFIX}_{name}"
        if key in record.posthoc:
            yield _line(record, key, record.posthoc[key], meaning)


def _shifted(record: Record) -> Iterator[Line]:
    """Yield the mean of each metric over all shifted sets."""
    names = dict.fromkeys(name for section in record.shifted.values() for name in section)
    for name in names:
        values = [section[name] for section in record.shifted.values() if name in section]
        meaning = METRICS[name].explanation if name in METRICS else ""
        yield Line(name, sum(values) / len(values), None, meaning)


def _listed(record: Record, numbers: dict[str, float], meanings: dict[str, str]) -> list[Line]:
    """Return numbers with their meanings, those known in the order of the meanings, and then all others."""
    order = [
        *(name for name in meanings if name in numbers),
        *(name for name in numbers if name not in meanings),
    ]
    return [_line(record, name, numbers[name], meanings.get(name, "")) for name in order]
