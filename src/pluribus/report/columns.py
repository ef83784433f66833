"""Columns: the numbers of a record that tables show, and their means over seeds."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pluribus.comparison.at_threshold import PREFIX
from pluribus.comparison.record import Record
from pluribus.errors import InputError
from pluribus.metrics import METRICS
from pluribus.metrics.shift import ShiftErrors, mean_corruption_error
from pluribus.metrics.threshold import rates_in_words, two_names
from pluribus.report.groups import Entry, Group

# Figures that a number in the units of the data shows: RMSE may be 0.01 or 10,000.
FIGURES = 4


@dataclass(frozen=True)
class Column:
    """A number of a record.

    Args:
        name: Its name in a budget or on a command line.
        title: Its head in a table.
        value: Returns it from a record; NaN where the record has none.
        lower_is_better: Which values are better.
        explanation: Its meaning, in a sentence.
        digits: Decimals to show.
        is_cost: Whether it is a cost, and no quality.
    """

    name: str
    title: str
    value: Callable[[Record], float]
    lower_is_better: bool
    explanation: str
    digits: int = 3
    is_cost: bool = False

    def cell(self, entry: Entry) -> "Cell":
        """Return its mean and standard error over the seeds of a configuration."""
        return summarise([self.value(run) for run in entry.runs])

    def better(self, one: float, other: float) -> bool:
        """Return whether a value is better than another; any number is better than none."""
        if math.isnan(one):
            return False
        if math.isnan(other):
            return True
        return one < other if self.lower_is_better else one > other


@dataclass(frozen=True)
class Cell:
    """The mean over seeds, its standard error (NaN for one seed), and whether it is its column's best."""

    mean: float
    error: float
    best: bool = False

    def show(self, digits: int) -> str:
        """Return `0.912±0.004`, without an error that is zero or unknown; a dash where there is no number."""
        if math.isnan(self.mean):
            return "–"
        shown = f"{self.mean:.{digits}f}"
        return f"{shown}±{self.error:.{digits}f}" if self.error > 0 else shown


def summarise(values: Iterable[float]) -> Cell:
    """Return the mean and the standard error of the values that are finite."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return Cell(math.nan, math.nan)
    error = math.nan
    if len(known) > 1:
        error = statistics.stdev(known) / math.sqrt(len(known))
    return Cell(statistics.fmean(known), error)


def columns_of(group: Group) -> tuple[Column, ...]:
    """Return the columns for which some record of the group has a number."""
    found = []
    for column in all_columns(group):
        if any(math.isfinite(column.value(run)) for run in group.records):
            found.append(column)
    return tuple(found)


def metric_column(name: str, title: str = "") -> Column:
    """Return the column of a metric on the test data."""
    metric = METRICS[name]

    def value(run: Record) -> float:
        return run.metrics.get(name, math.nan)

    return Column(name, title or metric.title, value, metric.direction == "lower", metric.explanation)


def _in_units(group: Group, name: str) -> Column:
    """Return the column of a metric in the units of the data, with decimals that fit its largest value."""
    column = metric_column(name)
    sizes = [abs(column.value(run)) for run in group.records]
    largest = max((size for size in sizes if math.isfinite(size)), default=0.0)
    # A logarithm of zero does not exist: where all values are 0 any number of decimals will do.
    if not largest:
        return column
    places = FIGURES - 1 - math.floor(math.log10(largest))
    return replace(column, digits=max(places, 0))


def _cost(group: Group, name: str, title: str, explanation: str) -> Column:
    """Return the column of a cost over that of the single network; of the cost itself without such ratios."""
    ratio = f"{name}_ratio"

    def relative(run: Record) -> float:
        return run.cost.get(ratio, math.nan)

    def absolute(run: Record) -> float:
        return run.cost.get(name, math.nan)

    if any(ratio in run.cost for run in group.records):
        explained = f"{explanation}, over that of the single network."
        return Column(name, f"{title} ×", relative, True, explained, digits=2, is_cost=True)
    return Column(name, title, absolute, True, f"{explanation}.", digits=0, is_cost=True)


def all_columns(group: Group) -> list[Column]:
    """Return the columns of all numbers that records may have, in the order of the table."""
    return [
        *_tested(group),
        *_shifted(),
        Column(
            "shifted_accuracy",
            "shifted acc.",
            lambda r: _mean(r.shifted, "accuracy"),
            lower_is_better=False,
            explanation="Accuracy on corrupted test data, averaged over kinds and severities.",
        ),
        Column(
            "shifted_ece",
            "shifted ECE",
            lambda r: _mean(r.shifted, "ece"),
            lower_is_better=True,
            explanation="ECE on corrupted test data, averaged over kinds and severities.",
        ),
        Column(
            "shifted_calibrated_ece",
            "shifted ECE calibrated",
            lambda r: _mean(r.shifted, "scaled_ece"),
            lower_is_better=True,
            explanation="ECE on corrupted test data, averaged over kinds and severities, after calibration "
            "on clean data.",
        ),
        Column(
            "mean_corruption_error",
            "mCE",
            lambda r: _corruption_error(r, group),
            lower_is_better=True,
            explanation="Error on corrupted test data over that of the single network of the same seed, "
            "averaged over kinds: below 1 is better than the single network.",
        ),
        Column(
            "ood_auroc",
            "OOD AUROC",
            _ood,
            lower_is_better=False,
            explanation="How often data of another kind look stranger than test data, by the score that was "
            "chosen on validation data (older runs: entropy or variance), averaged over sets: 1 is perfect, "
            "0.5 is chance.",
        ),
        Column(
            "ood_auroc_entropy",
            "OOD AUROC, entropy",
            _ood_by_entropy,
            lower_is_better=False,
            explanation="How often data of another kind look more uncertain than test data, by entropy (or "
            "variance), whatever score was chosen.",
        ),
        _cost(group, "parameters", "params", "The number of parameters"),
        _cost(group, "multiply_adds", "mult-adds", "The number of multiply-adds that one sample takes"),
        _cost(group, "train_multiply_adds", "training", "The number of multiply-adds of all training passes"),
        _cost(group, "latency", "time", "The time that a batch of 32 takes, measured in turn"),
    ]


def _of_two_classes(name: str) -> Column:
    """Return the column of a metric that is shown for two classes alone: of more, it says little."""
    column = metric_column(name)

    def value(run: Record) -> float:
        return column.value(run) if PREFIX in run.posthoc else math.nan

    return replace(column, value=value)


def _at_threshold(group: Group, name: str) -> Column:
    """Return the column of a rate at the threshold that was chosen on validation data."""
    key = f"{PREFIX}_{name}"
    names = next((run.class_names for run in group.records if run.class_names), [])
    explained = (
        f"{rates_in_words(names)[name]} Class {two_names(names)[1]} is answered from the probability on that "
        "was best on validation data."
    )
    return Column(key, name, lambda run: run.posthoc.get(key, math.nan), False, explained)


def _expected_cost() -> Column:
    return Column(
        "expected_cost",
        "expected cost",
        lambda run: run.decisions.get("expected_cost", math.nan),
        lower_is_better=True,
        explanation="Mean cost of a decision on test data, with the costs given: the cheapest answer by the "
        "predicted probabilities, or deferring where that is cheaper.",
    )


def _tested(group: Group) -> list[Column]:
    """Return the columns of metrics on the test data, raw and calibrated side by side."""
    return [
        metric_column("accuracy"),
        _expected_cost(),
        _of_two_classes("auroc"),
        _of_two_classes("auprc"),
        _at_threshold(group, "sensitivity"),
        _at_threshold(group, "specificity"),
        metric_column("dice"),
        metric_column("iou"),
        metric_column("nll"),
        _calibrated("nll"),
        metric_column("ece"),
        _calibrated("ece"),
        _in_units(group, "rmse"),
        # A table has either of both, so that the title need not tell them apart.
        metric_column("gaussian_nll", "NLL"),
        _calibrated("gaussian_nll", "NLL"),
        _in_units(group, "crps"),
        metric_column("coverage_gap_95", "coverage gap"),
    ]


def _calibrated(name: str, title: str = "") -> Column:
    """Return the column of a metric on the test data after calibration."""
    metric = METRICS[name]

    def value(run: Record) -> float:
        return run.posthoc.get(f"scaled_{name}", math.nan)

    explanation = f"{metric.explanation} After calibration on validation data."
    return Column(
        f"calibrated_{name}",
        f"{title or metric.title} calibrated",
        value,
        metric.direction == "lower",
        explanation,
    )


def _shifted() -> list[Column]:
    """Return the columns of the NLL on corrupted test data, raw and calibrated."""
    found = []
    for name in ("nll", "gaussian_nll"):
        for stem, word, after in (
            ("", "", ""),
            ("scaled_", " calibrated", ", after calibration on clean data"),
        ):
            found.append(_shifted_column(f"{stem}{name}", f"shifted NLL{word}", after))
    return found


def _shifted_column(name: str, title: str, after: str) -> Column:
    def value(run: Record) -> float:
        return _mean(run.shifted, name)

    explanation = f"NLL on corrupted test data, averaged over kinds and severities{after}."
    return Column(f"shifted_{name.replace('scaled', 'calibrated')}", title, value, True, explanation)


def _mean(sections: dict[str, dict[str, float]], name: str) -> float:
    """Return the mean of a metric over several data sets; NaN where none has it."""
    return summarise(section.get(name, math.nan) for section in sections.values()).mean


def _ood(run: Record) -> float:
    """Return the mean AUROC over data sets by the chosen score; older records have none."""
    chosen = _mean(run.ood, "auroc_chosen")
    if not math.isnan(chosen):
        return chosen
    return _entropy_or_variance(run)


def _ood_by_entropy(run: Record) -> float:
    """Return the mean AUROC by entropy, where another score was chosen."""
    if math.isnan(_mean(run.ood, "auroc_chosen")):
        return math.nan
    return _entropy_or_variance(run)


def _entropy_or_variance(run: Record) -> float:
    """Return the mean AUROC over data sets: by entropy, or by variance for regression."""
    by_entropy = _mean(run.ood, "auroc_entropy")
    if not math.isnan(by_entropy):
        return by_entropy
    return _mean(run.ood, "auroc_variance")


def _corruption_error(run: Record, group: Group) -> float:
    """Return the mCE against the single network of the same seed; NaN where there is none to compare with."""
    single = _single_of(run.seed, group)
    # Errors on different corruptions do not compare.
    if single is None or not run.shifted or run.shifted.keys() != single.shifted.keys():
        return math.nan
    if "accuracy" not in run.metrics or "accuracy" not in single.metrics:
        return math.nan
    try:
        return mean_corruption_error(_shift_errors(run), _shift_errors(single))
    except InputError:
        # A single network without mistakes leaves nothing to divide by.
        return math.nan


def _single_of(seed: int, group: Group) -> Record | None:
    """Return the run of the single network with a seed."""
    runs: Sequence[Record] = group.single.runs if group.single else ()
    return next((run for run in runs if run.seed == seed), None)


def _shift_errors(run: Record) -> ShiftErrors:
    """Return the errors of a run by kind of corruption, from sections named `kind/severity`."""
    errors: dict[str, list[float]] = {}
    for name, section in run.shifted.items():
        errors.setdefault(name.split("/")[0], []).append(1 - section.get("accuracy", math.nan))
    return ShiftErrors(1 - run.metrics["accuracy"], errors)
