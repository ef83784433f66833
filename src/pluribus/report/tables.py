"""The table of a comparison: one row for each method, mean and standard error over seeds."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pluribus.comparison.record import Record
from pluribus.errors import InputError
from pluribus.metrics import METRICS
from pluribus.metrics.shift import ShiftErrors, mean_corruption_error
from pluribus.report.groups import Entry, Group


@dataclass(frozen=True)
class Column:
    """A number of a record.

    Args:
        name: What it is called in a budget or on a command line.
        title: Its head in a table.
        value: Where it is found; NaN where it is not.
        lower_is_better: Which values are better.
        explanation: What it means, in a sentence.
        digits: Decimals to show.
        is_cost: Whether it says what is paid, not what is got.
    """

    name: str
    title: str
    value: Callable[[Record], float]
    lower_is_better: bool
    explanation: str
    digits: int = 3
    is_cost: bool = False

    def cell(self, entry: Entry) -> "Cell":
        """Its mean and standard error over the seeds of a configuration."""
        return summarise([self.value(run) for run in entry.runs])

    def better(self, one: float, other: float) -> bool:
        """Whether a value is better than another; any number is better than none."""
        if math.isnan(one) or math.isnan(other):
            return not math.isnan(one) and math.isnan(other)
        return one < other if self.lower_is_better else one > other


@dataclass(frozen=True)
class Cell:
    """The mean over seeds, its standard error (NaN for one seed), and whether it is its column's best."""

    mean: float
    error: float
    best: bool = False

    def show(self, digits: int) -> str:
        """`0.912±0.004`, without an error where it is exact or unknown; a dash where there is no number."""
        if math.isnan(self.mean):
            return "–"
        shown = f"{self.mean:.{digits}f}"
        return f"{shown}±{self.error:.{digits}f}" if self.error > 0 else shown


@dataclass(frozen=True)
class Table:
    """Cells by method and column."""

    columns: tuple[Column, ...]
    rows: dict[str, tuple[Cell, ...]]
    failures: tuple[str, ...] = ()


def make_table(group: Group) -> Table:
    """The table of a group; failed runs are named apart."""
    columns = columns_of(group)
    cells = {entry.label: [column.cell(entry) for column in columns] for entry in group.entries}
    for position, column in enumerate(columns):
        means = [row[position].mean for row in cells.values() if not math.isnan(row[position].mean)]
        best = min(means) if column.lower_is_better else max(means)
        for row in cells.values():
            row[position] = replace(row[position], best=row[position].mean == best)
    failures = tuple(f"{label} seed {run.seed}: {run.error}" for label, run in group.failures)
    return Table(columns, {method: tuple(row) for method, row in cells.items()}, failures)


def columns_of(group: Group) -> tuple[Column, ...]:
    """The columns for which some record of the group has a number."""
    records = group.records
    return tuple(one for one in all_columns(group) if any(math.isfinite(one.value(r)) for r in records))


def summarise(values: Sequence[float]) -> Cell:
    """Mean and standard error of the values that are finite."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return Cell(math.nan, math.nan)
    error = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else math.nan
    return Cell(statistics.fmean(known), error)


def metric_column(name: str, title: str = "") -> Column:
    """The column of a metric on the test data."""
    metric = METRICS[name]
    lower = metric.direction == "lower"
    value: Callable[[Record], float] = lambda r: r.metrics.get(name, math.nan)
    return Column(name, title or metric.title, value, lower, metric.explanation)


def _in_units(group: Group, name: str) -> Column:
    """A metric in the units of the data, with as many decimals as show four figures of the largest."""
    column = metric_column(name)
    sizes = [abs(column.value(run)) for run in group.records]
    largest = max((size for size in sizes if math.isfinite(size)), default=0.0)
    places = 3 - math.floor(math.log10(largest)) if largest else column.digits
    return replace(column, digits=max(places, 0))


def _cost(group: Group, name: str, title: str, explanation: str) -> Column:
    """A cost over that of the single network; as it is where no run knows the ratio."""
    ratio = f"{name}_ratio"
    if any(ratio in run.cost for run in group.records):
        relative: Callable[[Record], float] = lambda r: r.cost.get(ratio, math.nan)
        told = f"{explanation}, over that of the single network."
        return Column(name, f"{title} ×", relative, True, told, digits=2, is_cost=True)
    plain: Callable[[Record], float] = lambda r: r.cost.get(name, math.nan)
    return Column(name, title, plain, True, f"{explanation}.", digits=0, is_cost=True)


def all_columns(group: Group) -> list[Column]:
    """All numbers that records may have, in the order of the table."""
    return [
        *_tested(group),
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
            explanation="How often data of another kind look more uncertain than test data, by entropy (or "
            "variance), averaged over sets: 1 is perfect, 0.5 is chance.",
        ),
        _cost(group, "parameters", "params", "The number of parameters"),
        _cost(group, "multiply_adds", "mult-adds", "The number of multiply-adds that one sample takes"),
        _cost(group, "train_multiply_adds", "training", "The number of multiply-adds of all training passes"),
        _cost(group, "latency", "time", "The time that a batch of 32 takes, measured in turn"),
    ]


def _tested(group: Group) -> list[Column]:
    """Metrics on the test data."""
    return [
        *(metric_column(name) for name in ("accuracy", "nll", "ece")),
        _in_units(group, "rmse"),
        metric_column("gaussian_nll", "NLL"),
        _in_units(group, "crps"),
        metric_column("coverage_gap_95", "coverage gap"),
    ]


def _mean(sections: dict[str, dict[str, float]], name: str) -> float:
    return summarise([section.get(name, math.nan) for section in sections.values()]).mean


def _ood(one: Record) -> float:
    """The mean over sets of the AUROC by entropy, or by variance for regression."""
    known = [_mean(one.ood, name) for name in ("auroc_entropy", "auroc_variance")]
    return next((value for value in known if not math.isnan(value)), math.nan)


def _corruption_error(one: Record, group: Group) -> float:
    """The mCE against the single network of the same seed; NaN where they were not measured alike, or where
    the single network makes no mistakes to divide by.
    """
    vanilla = next((run for run in _singles(group) if run.seed == one.seed), None)
    if vanilla is None or not one.shifted or one.shifted.keys() != vanilla.shifted.keys():
        return math.nan
    if "accuracy" not in one.metrics or "accuracy" not in vanilla.metrics:
        return math.nan
    try:
        return mean_corruption_error(_shift_errors(one), _shift_errors(vanilla))
    except InputError:
        return math.nan


def _singles(group: Group) -> tuple[Record, ...]:
    return group.single.runs if group.single else ()


def _shift_errors(one: Record) -> ShiftErrors:
    errors: dict[str, list[float]] = {}
    for name, section in one.shifted.items():
        errors.setdefault(name.split("/")[0], []).append(1 - section.get("accuracy", math.nan))
    return ShiftErrors(1 - one.metrics["accuracy"], errors)
