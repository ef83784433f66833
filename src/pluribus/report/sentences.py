"""Sentences: why a configuration is recommended, and at what cost, in plain language."""

import math
from collections.abc import Iterator, Sequence

from pluribus.report.budget import Limit
from pluribus.report.columns import Column, columns_of
from pluribus.report.groups import Entry, Group
from pluribus.report.noise import FORMS, Difference, difference
from pluribus.report.rivals import BETTER, CHANCE, UNKNOWN, Rival, cost_ratios, is_worse
from pluribus.report.wording import listed, with_interval

UNPAIRED = "no outcomes of the same seeds and test samples, all finite, lie beside the records"


def nothing_fits(group: Group, limits: Sequence[Limit], over: int) -> str:
    """Return why nothing is recommended; `over` configurations are beyond the budget."""
    if not group.entries:
        return "No run has succeeded."
    if over == len(group.entries):
        return f"Nothing fits the budget, {listed(limits)}."
    return "No configuration within the budget has a quality to judge by."


def beyond_budget(over: Sequence[tuple[Entry, str]]) -> Iterator[str]:
    """Yield which configurations are beyond the budget, and why."""
    reasons = [f"{entry.label} ({why})" for entry, why in over]
    if reasons:
        yield f"Beyond the budget: {listed(reasons)}."


def best_of(choice: Entry, judge: Column, count: int, limits: Sequence[Limit]) -> str:
    """Return the quality of the choice, the best of `count` configurations within the budget."""
    within = f" within the budget, {listed(limits)}" if limits else ""
    seeds = len(choice.runs)
    over = f"mean over {seeds} seeds" if seeds > 1 else "one seed"
    quality = f"{judge.cell(choice).show(judge.digits)} ({over})"
    if count == 1:
        return f"It is the only configuration{within or ' that was run'}: {judge.title} {quality}."
    word = "lowest" if judge.lower_is_better else "highest"
    return f"Of {count} configurations{within}, it has the {word} {judge.title}: {quality}."


def against_single(choice: Entry, judge: Column, group: Group) -> Iterator[str]:
    """Yield how the choice compares with the single network, which need not be within the budget."""
    single = group.single
    if single is None or single is choice:
        return
    gap = difference(choice, single, judge.name)
    if gap is not None:
        verdict = "which may be chance" if gap.within_noise else "more than chance makes"
        yield f"Against the single network its {judge.title} is {with_interval(gap, judge)}, {verdict}."
    sure = []
    for column in columns_of(group):
        # Only these metrics have a test of chance; the judge has had its sentence.
        if column.name not in FORMS or column.name == judge.name:
            continue
        gap = difference(choice, single, column.name)
        if gap is not None and not gap.within_noise:
            sure.append(_judged(column, gap))
    if sure:
        yield f"Beyond chance against the single network: {listed(sure)}."


def _judged(column: Column, gap: Difference) -> str:
    verdict = "worse" if is_worse(column, gap) else "better"
    return f"{column.title} is {verdict}, {with_interval(gap, column)}"


def as_good(rivals: Sequence[Rival], judge: Column) -> Iterator[str]:
    """Yield which others may be as good."""
    unknown = _with_verdict(rivals, UNKNOWN)
    if unknown:
        yield f"Whether it beats {_named(unknown)} is not known: {_reason(unknown, judge)}."
    ahead = _with_verdict(rivals, BETTER)
    if ahead:
        yield f"On the seeds that both have, {_named(ahead)} did better: give all the same seeds."
    chance = _with_verdict(rivals, CHANCE)
    if chance:
        saving = [f"{rival.entry.label} ({rival.cheaper})" for rival in chance if rival.cheaper]
        cheaper = f" If cost matters, take {' or '.join(saving)}." if saving else ""
        yield f"That it beats {_named(chance)} may be chance.{cheaper}"


def _with_verdict(rivals: Sequence[Rival], verdict: str) -> list[Rival]:
    return [rival for rival in rivals if rival.verdict == verdict]


def _named(rivals: Sequence[Rival]) -> str:
    return listed([rival.entry.label for rival in rivals])


def _reason(rivals: Sequence[Rival], judge: Column) -> str:
    """Return why differences are not known to be more than chance, and what to do about it."""
    if judge.name in FORMS:
        return UNPAIRED
    # One seed has no standard error.
    known = any(math.isfinite(rival.cell.error) for rival in rivals)
    advice = "compare standard errors" if known else "run several seeds"
    return f"chance is not tested for {judge.title}, so {advice}"


def price(choice: Entry, group: Group) -> Iterator[str]:
    """Yield what the choice costs, as far as that is known."""
    if choice is group.single:
        return
    parts = []
    for column, name in cost_ratios(group):
        mean = column.cell(choice).mean
        if not math.isnan(mean):
            parts.append(f"{mean:.2f} × the {name}")
    if not parts:
        return
    # Time is measured, and says what multiply-adds do not: how well the machine runs them.
    taken = Limit("latency", math.inf, True).cost(choice, group)
    if not math.isnan(taken):
        parts.append(f"{taken:.2f} × the time")
    yield f"It costs {listed(parts)} of the single network."
