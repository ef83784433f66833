"""Compare statements of the Single Architecture Ensemble paper with records, and give their numbers.

A statement is judged by means over seeds; "within noise" is the paired bootstrap of `pluribus.report.noise`.
The configuration of the first two statements is the one with the lowest validation NLL, so that test data
choose nothing; statements that there is some configuration look at all of them, as the paper does.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pluribus.report.figures.grid import KIND, case_of
from pluribus.report.figures.preference import depth_of, read_together
from pluribus.report.groups import Entry, Group
from pluribus.report.noise import Difference, difference

HIGHER = ("accuracy", "macro_f1")
"""Metrics that are better if higher; all others here if lower."""


@dataclass(frozen=True)
class Finding:
    """A statement, where it stands, whether it holds here, and by which numbers."""

    statement: str
    place: str
    holds: bool
    found: str


def mean(entry: Entry, name: str) -> float:
    """Return the mean of a metric or of a cost over seeds."""
    return statistics.fmean(
        run.metrics[name] if name in run.metrics else run.cost[name] for run in entry.runs
    )


def better(one: float, other: float, metric: str) -> bool:
    """Return True if a value is better than another."""
    return one > other if metric in HIGHER else one < other


def configurations(group: Group, case: str | None = None) -> list[Entry]:
    """The single-architecture ensembles of a case, or all of them."""
    found = [entry for entry in group.entries if entry.kind == KIND]
    return [entry for entry in found if case in (None, case_name(entry, group))]


def case_name(entry: Entry, group: Group) -> str:
    """Early exits, MIMO and so on."""
    settings = entry.runs[0].method
    depth = max(map(depth_of, group.entries))
    return case_of(settings["inputs"], settings["exits"], depth)


def title(entry: Entry, group: Group) -> str:
    """`N=2, K=3 (in between)`, or the label of a baseline."""
    settings = entry.runs[0].method
    if entry.kind != KIND:
        return entry.label
    return f"N={settings['inputs']}, K={settings['exits']} ({case_name(entry, group)})"


def best(entries: Sequence[Entry], metric: str) -> Entry:
    """That of the best mean."""
    return (max if metric in HIGHER else min)(entries, key=lambda entry: mean(entry, metric))


def chosen(group: Group) -> Entry:
    """The configuration with the lowest validation NLL after the last epoch."""
    return min(
        configurations(group),
        key=lambda entry: statistics.fmean(run.history["validation_nll"][-1] for run in entry.runs),
    )


def of_kind(group: Group, kind: str) -> Entry:
    """A baseline."""
    return next(entry for entry in group.entries if entry.kind == kind)


def gap(one: Entry, other: Entry, metric: str) -> Difference:
    """How much higher the metric of one is, with its noise."""
    found = difference(one, other, metric)
    assert found is not None, f"{metric} of {one.label} and {other.label}: no outcomes"
    return found


def not_worse(one: Entry, other: Entry, metric: str) -> bool:
    """Better, or within noise."""
    found = gap(one, other, metric)
    return found.within_noise or better(found.value, 0, metric)


def told(one: Entry, other: Entry, metric: str) -> str:
    """`accuracy 0.812 against 0.820, within noise (-0.021 to 0.004)`."""
    found = gap(one, other, metric)
    noise = "within noise" if found.within_noise else "beyond noise"
    ends = f"{found.low:+.3f} to {found.high:+.3f}"
    return f"{metric} {mean(one, metric):.3f} against {mean(other, metric):.3f}, {noise} ({ends})"


def saving(one: Entry, other: Entry) -> tuple[float, float]:
    """How many times fewer multiply-adds and parameters one has than the other."""
    multiply_adds, parameters = (
        mean(other, name) / mean(one, name) for name in ("multiply_adds", "parameters")
    )
    return multiply_adds, parameters


def relative_cost(one: Entry, other: Entry) -> str:
    """Return the cost of one relative to the other, in words."""
    multiply_adds, parameters = (1 / times for times in saving(one, other))
    return f"{multiply_adds:.2f} × its multiply-adds, {parameters:.2f} × its parameters"


def against_baselines(group: Group, quality: str, trust: str) -> list[Finding]:
    """Statements that the paper makes of all its sets; metrics whose noise is known."""
    one, deep, single = chosen(group), of_kind(group, "deep_ensembles"), of_kind(group, "single")
    as_good = [metric for metric in (quality, trust) if not_worse(one, deep, metric)]
    less = max(saving(one, deep)) > 1
    gained = [metric for metric in (quality, trust) if not gap(one, single, metric).within_noise]
    gained = [metric for metric in gained if better(gap(one, single, metric).value, 0, metric)]
    name = f"{title(one, group)}, chosen by validation NLL: "
    return [
        Finding(
            "accuracy or calibration competitive with the ensemble, at fewer multiply-adds or parameters",
            "Abstract, Section 4.1",
            bool(as_good) and less,
            name + "; ".join([*(told(one, deep, m) for m in (quality, trust)), relative_cost(one, deep)]),
        ),
        Finding(
            "better than the standard network",
            "Section 4.1",
            bool(gained),
            name + "; ".join(told(one, single, metric) for metric in (quality, trust)),
        ),
    ]


def of_the_grid(group: Group, first: str, second: str) -> list[Finding]:
    """Figure 3: the two metrics that the paper shows for this set."""
    entries = configurations(group)
    winners = [best(entries, metric) for metric in (first, second)]
    several = [entry for entry in entries if entry.runs[0].method["inputs"] > 1]
    alone = [entry for entry in entries if entry.runs[0].method["inputs"] == 1]
    ahead = {m: (mean(best(several, m), m), mean(best(alone, m), m)) for m in (first, second)}
    return [
        Finding(
            "the best N and K differ between metrics",
            "Section 4.2, Figure 3",
            winners[0] is not winners[1],
            "; ".join(
                f"{metric}: {title(entry, group)} {mean(entry, metric):.3f}"
                for metric, entry in zip((first, second), winners, strict=True)
            ),
        ),
        Finding(
            "several inputs, N > 1, can be better than one",
            "Section 4.2, Figure 3",
            any(better(*pair, metric) for metric, pair in ahead.items()),
            "; ".join(
                f"{metric}: best {a:.3f} with N > 1, {b:.3f} with N = 1" for metric, (a, b) in ahead.items()
            ),
        ),
    ]


def of_tiny_imagenet(group: Group) -> Finding:
    deep = of_kind(group, "deep_ensembles")
    most = best(group.entries, "accuracy")
    fits = [
        entry
        for entry in configurations(group, "in between")
        if mean(entry, "accuracy") >= mean(deep, "accuracy") - 0.03
        and mean(entry, "ece") < mean(deep, "ece")
        and saving(entry, deep)[0] >= 3.2
    ]
    return Finding(
        "the ensemble is the most accurate; an in-between configuration is within 0.03 of it, has a lower "
        "ECE and 3.2 × fewer multiply-adds",
        "Section 4.1, Figure 2",
        most is deep and bool(fits),
        f"most accurate: {title(most, group)}; such configurations: "
        + _listed(fits, ("accuracy", "ece"), deep, group),
    )


def of_blood_mnist(group: Group) -> Finding:
    deep = of_kind(group, "deep_ensembles")
    most = {metric: best(group.entries, metric) for metric in ("macro_f1", "class_conditional_ece")}
    fits = [
        entry
        for entry in configurations(group, "in between")
        if saving(entry, deep)[0] >= 1.5
        and any(
            abs(mean(entry, m) - mean(deep, m)) <= 0.01 or better(mean(entry, m), mean(deep, m), m)
            for m in most
        )
    ]
    winners = ", ".join(f"{metric} {title(entry, group)}" for metric, entry in most.items())
    return Finding(
        "the ensemble is the best; an in-between configuration is within 0.01 of its F1 or CC-ECE with "
        "1.5 × fewer multiply-adds (BloodMNIST there)",
        "Section 4.1, Figure 2",
        all(entry is deep for entry in most.values()) and bool(fits),
        f"best: {winners}; such configurations: {_listed(fits, tuple(most), deep, group)}",
    )


def of_pneumonia_mnist(group: Group) -> Finding:
    most = best(group.entries, "macro_f1")
    early = best(configurations(group, "early exits"), "macro_f1")
    other = of_kind(group, "batch_ensemble")
    return Finding(
        "early exits are the best method, at about half of BatchEnsemble's multiply-adds",
        "Section 4.1, Figure 2",
        most in configurations(group, "early exits") and saving(early, other)[0] >= 1.5,
        f"best F1: {title(most, group)} {mean(most, 'macro_f1'):.3f}; of early exits {title(early, group)} "
        f"{mean(early, 'macro_f1'):.3f}; batch_ensemble {mean(other, 'macro_f1'):.3f}; "
        + relative_cost(early, other),
    )


def of_retina_mnist(group: Group) -> Finding:
    deep, mimo = of_kind(group, "deep_ensembles"), best(configurations(group, "MIMO"), "gaussian_nll")
    return Finding(
        "MIMO is comparable to the ensemble in NLL, with fewer multiply-adds and parameters",
        "Section 4.1, Figure 2",
        not_worse(mimo, deep, "gaussian_nll") and min(saving(mimo, deep)) > 1,
        f"{title(mimo, group)}: {told(mimo, deep, 'gaussian_nll')}; {relative_cost(mimo, deep)}",
    )


SPECIAL = {
    "tiny_imagenet": of_tiny_imagenet,
    "fashion_mnist": of_blood_mnist,
    "pneumonia_mnist": of_pneumonia_mnist,
    "retina_mnist": of_retina_mnist,
}
"""What the paper says of one set alone."""


def final_preference(group: Group) -> list[float]:
    """Return the mean preference of each depth after training, over inputs, seeds and configurations."""
    return [course.means[-1] for course in read_together(configurations(group))]


def evenness(shares: Sequence[float]) -> float:
    """Entropy over that of equal shares, in [0, 1]."""
    return -sum(share * math.log(share) for share in shares if share > 0) / math.log(len(shares))


def across(groups: dict[str, Group], metrics: dict[str, tuple[str, str]]) -> list[Finding]:
    """Statements over all sets."""
    winners = {
        (name, metric): case_name(best(configurations(group), metric), group)
        for name, group in groups.items()
        for metric in metrics[name]
    }
    shares = {name: final_preference(group) for name, group in groups.items()}
    even = {name: evenness(own) for name, own in shares.items()}
    hard = "tiny_imagenet"
    return [
        Finding(
            "no case is the best for all sets and metrics",
            "Sections 1 and 4.2",
            len(set(winners.values())) > 1,
            "; ".join(f"{name}, {metric}: {case}" for (name, metric), case in winners.items()),
        ),
        Finding(
            "deep exits are preferred strongly on Tiny ImageNet, all depths about alike on the easier sets",
            "Section 4.2, Figure 4",
            max(shares[hard]) == shares[hard][-1] and min(even, key=lambda name: even[name]) == hard,
            "; ".join(
                f"{name}: {', '.join(f'{share:.2f}' for share in own)} (evenness {even[name]:.2f})"
                for name, own in shares.items()
            ),
        ),
    ]


def plain(findings: Sequence[Finding]) -> list[dict[str, object]]:
    """For a file."""
    return [
        asdict(finding) | {"verdict": "holds" if finding.holds else "does not hold"} for finding in findings
    ]


def _listed(entries: Sequence[Entry], metrics: Sequence[str], other: Entry, group: Group) -> str:
    """Some configurations with their metrics, and what they save against another."""

    def values(entry: Entry) -> str:
        return ", ".join(f"{metric} {mean(entry, metric):.3f}" for metric in metrics)

    rows = [f"{title(entry, group)}: {values(entry)}, {relative_cost(entry, other)}" for entry in entries]
    return f"{'; '.join(rows) or 'none'}; the ensemble: {values(other)}"
