"""Costs of decisions in a sentence: what a configuration costs, beside the best that needs no prediction."""

import math
from collections.abc import Iterator

from pluribus.report.columns import summarise
from pluribus.report.groups import Entry
from pluribus.report.wording import listed, percent

# Shares of test samples in the order of the sentence.
SHARES = {
    "deferred": "deferred",
    "missed": "missed",
    "false_alarms": "false alarms",
    "wrong": "wrong",
}


def decision_costs(entry: Entry) -> Iterator[str]:
    """Yield what the decisions of a configuration cost on test data; nothing where no costs are given."""
    cost = _mean(entry, "expected_cost")
    if math.isnan(cost):
        return
    shares = []
    for name, words in SHARES.items():
        share = _mean(entry, name)
        if not math.isnan(share):
            shares.append(f"{percent(share)} {words}")
    constant = _mean(entry, "cost_of_one_answer")
    yield (
        f"With these costs ({_prices(entry)}) a decision costs {cost:.3g} on average, {listed(shares)}; the "
        f"same answer for all, or deferring all, would cost {constant:.3g}."
    )


def costs_option(entry: Entry) -> str:
    """Return the option of the command line with the costs that were given; empty where there are none."""
    if math.isnan(_mean(entry, "expected_cost")):
        return ""
    return f' --costs "{_prices(entry).replace(", ", ",").replace(" ", "=")}"'


def _prices(entry: Entry) -> str:
    """Return the costs that were given, as `miss 10, alarm 1`."""
    found = entry.runs[0].decisions
    prices = {name.removeprefix("cost_"): value for name, value in found.items() if name.startswith("cost_")}
    # The cost of one answer is a result, and `wrong` is only the default of the two others where these are.
    del prices["of_one_answer"]
    if "miss" in prices and "alarm" in prices:
        del prices["wrong"]
    return ", ".join(f"{name} {value:g}" for name, value in prices.items())


def _mean(entry: Entry, name: str) -> float:
    return summarise(run.decisions.get(name, math.nan) for run in entry.runs).mean
