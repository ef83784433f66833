"""Recommendation: which configuration to take within a budget, in plain language, and what that rests on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pluribus.errors import SettingError
from pluribus.report.budget import COSTS, Limit
from pluribus.report.groups import Entry, Group
from pluribus.report.noise import FORMS, Difference, difference
from pluribus.report.tables import Cell, Column, all_columns, columns_of
from pluribus.settings import invalid, nearest

JUDGES = ("nll", "gaussian_nll", "rmse")
"""What is judged by unless the user says otherwise: the first that there is."""
UNPAIRED = "no outcomes of the same seeds and test samples, all finite, lie beside the records"


@dataclass(frozen=True)
class Rival:
    """Another configuration within the budget: how it stands to the recommended one.

    Args:
        entry: The other one.
        cell: Its quality.
        gap: Its quality less that of the recommended one; None where that is not known.
        behind: Whether the gap speaks against it.
        cheaper: What it saves, in words; empty where it does not cost less.
    """

    entry: Entry
    cell: Cell
    gap: Difference | None
    behind: bool
    cheaper: str = ""

    @property
    def verdict(self) -> str:
        """Over the seeds that both have; these may favour one that all seeds do not."""
        if self.gap is None:
            return "not known"
        if self.gap.within_noise:
            return "may be chance"
        return "worse" if self.behind else "better on shared seeds"


@dataclass(frozen=True)
class Recommendation:
    """What to take.

    Args:
        group: What was compared.
        limits: The budget.
        judge: The quality judged by.
        choice: The best within the budget; None where nothing is.
        rivals: The others within it that have the quality, best first.
        over: Those beyond it, with the reason.
    """

    group: Group
    limits: tuple[Limit, ...]
    judge: Column | None
    choice: Entry | None
    rivals: tuple[Rival, ...] = ()
    over: tuple[tuple[Entry, str], ...] = ()

    @property
    def alike(self) -> tuple[Rival, ...]:
        """Those that may be as good: all but those that are worse beyond chance."""
        return tuple(rival for rival in self.rivals if rival.verdict != "worse")

    @property
    def title(self) -> str:
        """The answer in a line."""
        if self.choice is None:
            return "Nothing to recommend"
        names = [rival.entry.label for rival in self.alike]
        others = f"; {names[0] if len(names) == 1 else f'{len(names)} others'} may be as good"
        return f"Take {self.choice.label}{others if names else ''}"

    @cached_property
    def sentences(self) -> tuple[str, ...]:
        """Why, what it costs, and how far to trust it."""
        if self.choice is None or self.judge is None:
            return (*self._nothing(), *self._beyond())
        why = (_best(self, self.choice, self.judge), *_against_single(self, self.choice, self.judge))
        return (
            *why,
            *_as_good(self, self.judge),
            *_paid(self, self.choice),
            *_trust(self.choice),
            *self._beyond(),
        )

    def _nothing(self) -> list[str]:
        if not self.group.entries:
            return ["No run has succeeded."]
        if len(self.over) == len(self.group.entries):
            return [f"Nothing fits the budget, {_listed(self.limits)}."]
        return ["No configuration within the budget has a quality to judge by."]

    def _beyond(self) -> list[str]:
        reasons = [f"{entry.label} ({why})" for entry, why in self.over]
        return [f"Beyond the budget: {_listed(reasons)}."] if reasons else []


def recommend(group: Group, limits: tuple[Limit, ...] = (), metric: str | None = None) -> Recommendation:
    """The configuration of the best quality within a budget.

    Args:
        group: What to choose from.
        limits: The budget; what is not known to keep it is beyond it.
        metric: The quality, by its name in `columns_of`; by default the NLL, or RMSE where there is none.
    """
    over = tuple((entry, why) for entry in group.entries if (why := _excess(entry, group, limits)))
    beyond = [entry for entry, _ in over]
    within = [entry for entry in group.entries if entry not in beyond]
    judge = _judge(group, metric)
    if judge is None or not within:
        return Recommendation(group, limits, judge, None, over=over)
    order = _ranked(within, judge)
    if not order:
        return Recommendation(group, limits, None, None, over=over)
    rivals = tuple(_rival(entry, order[0], judge, group) for entry in order[1:])
    return Recommendation(group, limits, judge, order[0], rivals, over)


def _rival(entry: Entry, choice: Entry, judge: Column, group: Group) -> Rival:
    gap = difference(entry, choice, judge.name)
    behind = gap is not None and _is_worse(judge, gap)
    return Rival(entry, judge.cell(entry), gap, behind, _saving(entry, choice, group))


def _is_worse(column: Column, gap: Difference) -> bool:
    return (gap.value > 0) is column.lower_is_better


def _best(given: Recommendation, choice: Entry, judge: Column) -> str:
    within = f" within the budget, {_listed(given.limits)}" if given.limits else ""
    count, seeds = len(given.rivals) + 1, len(choice.runs)
    over = f"mean over {seeds} seeds" if seeds > 1 else "one seed"
    quality = f"{judge.cell(choice).show(judge.digits)} ({over})"
    if count == 1:
        return f"It is the only configuration{within or ' that was run'}: {judge.title} {quality}."
    word = "lowest" if judge.lower_is_better else "highest"
    return f"Of {count} configurations{within}, it has the {word} {judge.title}: {quality}."


def _against_single(given: Recommendation, choice: Entry, judge: Column) -> list[str]:
    """The judge and other metrics against the single network, whether or not that is within the budget."""
    single = given.group.single
    if single is None or single is choice:
        return []
    gap, said = difference(choice, single, judge.name), []
    if gap is not None:
        verdict = "which may be chance" if gap.within_noise else "more than chance makes"
        said.append(f"Against the single network its {judge.title} is {_told(gap, judge)}, {verdict}.")
    others = [c for c in columns_of(given.group) if c.name in FORMS and c.name != judge.name]
    gaps = [(column, difference(choice, single, column.name)) for column in others]
    sure = [_judged(column, gap) for column, gap in gaps if gap and not gap.within_noise]
    return [*said, *([f"Beyond chance against the single network: {_listed(sure)}."] if sure else [])]


def _judged(column: Column, gap: Difference) -> str:
    verdict = "worse" if _is_worse(column, gap) else "better"
    return f"{column.title} is {verdict}, {_told(gap, column)}"


def _as_good(given: Recommendation, judge: Column) -> list[str]:
    unknown, known, ahead = (
        [rival for rival in given.alike if rival.verdict == verdict]
        for verdict in ("not known", "may be chance", "better on shared seeds")
    )
    said = [f"Whether it beats {_named(unknown)} is not known: {_reason(unknown, judge)}."] if unknown else []
    if ahead:
        said.append(f"On the seeds that both have, {_named(ahead)} did better: give all the same seeds.")
    saving = [f"{rival.entry.label} ({rival.cheaper})" for rival in known if rival.cheaper]
    if known:
        cheaper = f" If cost matters, take {' or '.join(saving)}." if saving else ""
        said.append(f"That it beats {_named(known)} may be chance.{cheaper}")
    return said


def _named(rivals: Sequence[Rival]) -> str:
    return _listed([rival.entry.label for rival in rivals])


def _reason(rivals: Sequence[Rival], judge: Column) -> str:
    """Why differences are not known to be more than chance, and what to do about it."""
    if judge.name in FORMS:
        return UNPAIRED
    known = any(math.isfinite(rival.cell.error) for rival in rivals)
    advice = "compare standard errors" if known else "run several seeds"
    return f"chance is not tested for {judge.title}, so {advice}"


def _paid(given: Recommendation, choice: Entry) -> list[str]:
    if choice is given.group.single:
        return []
    costs = [(column.cell(choice).mean, name) for column, name in _ratios(given.group)]
    parts = [f"{mean:.2f} × the {name}" for mean, name in costs if not math.isnan(mean)]
    return [f"It costs {_listed(parts)} of the single network."] if parts else []


def _trust(entry: Entry) -> list[str]:
    """What its confidence is worth, from its outcomes."""
    columns = [run.outcomes.columns for run in entry.runs if run.outcomes is not None]
    if columns and all("confidence" in one for one in columns):
        said = float(np.mean([one["confidence"].mean() for one in columns]))
        right = float(np.mean([(one["label"] == one["target"]).mean() for one in columns]))
        word = "too sure" if said > right else "too careful"
        return [
            f"On test data it is {_percent(said)} sure on average and right in {_percent(right)} of cases: "
            f"{word} by {abs(said - right) * 100:.1f} points."
        ]
    if columns and all("low" in one for one in columns):
        inside = [(one["low"] <= one["target"]) & (one["target"] <= one["high"]) for one in columns]
        share = float(np.mean([hits.mean() for hits in inside]))
        return [f"Its 95 % intervals hold {_percent(share)} of the test targets."]
    return []


def qualities(group: Group, measured: bool = True) -> dict[str, Column]:
    """What configurations of a group can be judged by; all that there may be if not `measured`."""
    columns = columns_of(group) if measured else all_columns(group)
    return {column.name: column for column in columns if not column.is_cost}


def check_metric(metric: str | None) -> None:
    """Refuses what no group can be judged by, before anything is run."""
    names = qualities(Group("", "", "", ()), measured=False)
    if metric is not None and metric not in names:
        raise invalid("metric", f"one of {', '.join(names)}", metric, names)


def _judge(group: Group, metric: str | None) -> Column | None:
    columns = qualities(group)
    if metric is None:
        return next((columns[name] for name in JUDGES if name in columns), None)
    if metric not in columns:
        raise SettingError(
            f"configurations are judged by {', '.join(columns)}, however: {metric!r}."
            + nearest(metric, columns)
        )
    return columns[metric]


def _ranked(entries: Sequence[Entry], judge: Column) -> list[Entry]:
    """Best first; those without a number are left out."""
    known = [entry for entry in entries if not math.isnan(judge.cell(entry).mean)]
    return sorted(known, key=lambda entry: judge.cell(entry).mean, reverse=not judge.lower_is_better)


def _excess(entry: Entry, group: Group, limits: Sequence[Limit]) -> str:
    """Why a configuration is beyond the budget; empty where it is not."""
    said = []
    for limit in limits:
        cost = limit.cost(entry, group)
        if math.isnan(cost):
            said.append(f"{COSTS[limit.name]} not known")
        elif cost > limit.most * (1 + 1e-9):
            said.append(f"{COSTS[limit.name]} {cost:.3g}{' ×' if limit.relative else ''}")
    return ", ".join(said)


def _saving(entry: Entry, choice: Entry, group: Group) -> str:
    """What a configuration costs less than the choice; empty where some cost is higher."""
    pairs = [(column.cell(entry).mean, column.cell(choice).mean, name) for column, name in _ratios(group)]
    pairs = [pair for pair in pairs if not math.isnan(pair[0] + pair[1])]
    if any(own > chosen * 1.001 for own, chosen, _ in pairs):
        return ""
    return _listed([f"{own:.2f} × the {name}" for own, chosen, name in pairs if own < chosen * 0.999])


def _ratios(group: Group) -> list[tuple[Column, str]]:
    """Costs that are counted, not timed, over those of the single network."""
    words = {"parameters": "parameters", "multiply_adds": "multiply-adds"}
    columns = (c for c in columns_of(group) if c.is_cost and c.name in words and c.title.endswith("×"))
    return [(column, words[column.name]) for column in columns]


def _told(gap: Difference, column: Column) -> str:
    """A gap with its interval, both as they are read."""
    word, *ends = ("higher", gap.low, gap.high) if gap.value >= 0 else ("lower", -gap.high, -gap.low)
    value, low, high = (f"{one:.{column.digits}f}" for one in (abs(gap.value), *ends))
    return f"{value} {word} (95 % interval {low} to {high})".replace("-", "−")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _listed(parts: Sequence[object]) -> str:
    *first, last = map(str, parts) if parts else ("",)
    return f"{', '.join(first)} and {last}" if first else last
