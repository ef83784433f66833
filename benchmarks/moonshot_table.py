"""Compare every configuration of the moonshot with four networks, and print tables in Markdown.

    PLURIBUS_DATA=... python benchmarks/moonshot_table.py

A configuration is *no worse* than `deep4` on a measure if the whole 95 % interval of the difference lies
within the margin: 0.02 nats of NLL, 0.01 of the calibration error, 0.01 of AUROC. The interval is a paired
bootstrap: each of 2000 resamples draws seeds, test samples and out-of-distribution samples with replacement,
the same ones for both configurations, and computes the difference of the means over the drawn seeds.

The calibration error is the ECE of 15 bins; for regression, the distance of the coverage of central intervals
from their level, averaged over 19 levels. AUROC is that of the entropy, for regression of the variance; a
second column has the score that separates validation data best from changed validation data (`proxies`),
chosen for each configuration. This was fixed before the runs; the distance of `pluribus.distance`, one of the
scores that `calibrate` chooses from, joined them afterwards. Calibrated predictions have one temperature, or
one factor of the variance, fitted on the validation data after pooling.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from moonshot import FOLDER, LEVELS, RUNS, Store
from moonshot_tasks import STUDIES
from torch import Generator, Tensor

from pluribus.distance import distance, fit_distance
from pluribus.metrics.ood import auroc

RESAMPLES = 2000
CHUNK = 100
"""Resamples that are computed at once, which bounds the memory."""
BINS = 15
TAIL = 0.025
MARGINS = {"nll": 0.02, "ece": 0.01, "auroc": 0.01}
REFERENCE = "deep4"
FEWEST_SEEDS = 5
CHEAP = 1.5
"""Multiply-adds of one network up to which a configuration counts as cheap."""

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Per-sample results of one configuration, a row per seed.

    Attributes:
        nll: Of each test sample, `[seeds, samples]`.
        gaps: Summands of the calibration error, `[seeds, samples, bins]`: what a sample adds to each gap.
        inside: Out-of-distribution scores of test samples, `[seeds, samples]`.
        outside: Those of the out-of-distribution set, `[seeds, strangers]`.
    """

    nll: Tensor
    gaps: Tensor
    inside: Tensor
    outside: Tensor


def class_gaps(confidence: Tensor, correct: Tensor) -> Tensor:
    """Return each sample's accuracy less confidence in the column of its bin, `[samples, bins]`.

    The ECE is the sum over bins of the absolute mean of a column.
    """
    place = (confidence.double() * BINS).ceil().long().sub(1).clamp(0, BINS - 1)
    gaps = torch.zeros(len(confidence), BINS, dtype=torch.float64)
    return gaps.scatter_(1, place[:, None], (correct.double() - confidence.double())[:, None])


def interval_gaps(below: Tensor) -> Tensor:
    """Return whether each target lies in the central interval, less its level, `[samples, levels]`.

    Divided by the number of levels, so that the sum over columns of absolute means is the calibration error.
    """
    depth = (2 * below.double() - 1).abs()
    return ((depth[:, None] <= LEVELS).double() - LEVELS) / len(LEVELS)


def draw_counts(samples: int, resamples: int, generator: Generator) -> Tensor:
    """Return how often each sample is drawn, `[resamples, samples]`; a row sums to the number of samples."""
    drawn = torch.randint(samples, (resamples, samples), generator=generator)
    counts = torch.zeros(resamples, samples, dtype=torch.float64)
    return counts.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))


def weighted_auroc(inside: Tensor, outside: Tensor, in_counts: Tensor, out_counts: Tensor) -> Tensor:
    """Compute the AUROC of every resample, `[resamples]`.

    Args:
        inside: Scores of test samples, `[samples]`.
        outside: Scores out of distribution, `[strangers]`.
        in_counts: How often each test sample is drawn, `[resamples, samples]`.
        out_counts: The same out of distribution, `[resamples, strangers]`.
    """
    ordered, order = inside.double().sort()
    up_to = in_counts[:, order].cumsum(1)
    before = torch.cat([torch.zeros(len(up_to), 1, dtype=up_to.dtype), up_to], 1)
    # Equal scores count half: the mean of those strictly below and those up to the score.
    left = torch.searchsorted(ordered, outside.double(), side="left")
    right = torch.searchsorted(ordered, outside.double(), side="right")
    ranks = (before[:, left] + before[:, right]) / 2
    return (ranks * out_counts).sum(1) / (in_counts.sum(1) * out_counts.sum(1))


def measures(outcome: Outcome, in_counts: Tensor, out_counts: Tensor) -> dict[str, Tensor]:
    """Compute NLL, calibration error and AUROC of each resample and seed, `[resamples, seeds]`."""
    shares = in_counts / in_counts.sum(1, keepdim=True)
    errors, areas = [], []
    for gaps, inside, outside in zip(outcome.gaps, outcome.inside, outcome.outside, strict=True):
        errors.append((shares @ gaps).abs().sum(1))
        areas.append(weighted_auroc(inside, outside, in_counts, out_counts))
    return {
        "nll": shares @ outcome.nll.double().T,
        "ece": torch.stack(errors, 1),
        "auroc": torch.stack(areas, 1),
    }


def estimates(outcome: Outcome) -> dict[str, Tensor]:
    """Compute the measures of the samples themselves, `[seeds]`."""
    ones = torch.ones(1, outcome.nll.shape[1], dtype=torch.float64)
    strangers = torch.ones(1, outcome.outside.shape[1], dtype=torch.float64)
    return {name: values[0] for name, values in measures(outcome, ones, strangers).items()}


def paired_differences(
    one: Outcome, other: Outcome, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Tensor]:
    """Draw differences of two configurations in every measure, `[resamples]`, over samples and seeds."""
    generator = Generator().manual_seed(seed)
    seeds, samples = one.nll.shape
    found: dict[str, list[Tensor]] = {name: [] for name in MARGINS}
    for start in range(0, resamples, CHUNK):
        count = min(CHUNK, resamples - start)
        in_counts = draw_counts(samples, count, generator)
        out_counts = draw_counts(one.outside.shape[1], count, generator)
        # Seeds are drawn like samples: a mean over five trainings is itself uncertain.
        weights = draw_counts(seeds, count, generator) / seeds
        first, second = (measures(outcome, in_counts, out_counts) for outcome in (one, other))
        for name in found:
            found[name].append(((first[name] - second[name]) * weights).sum(1))
    return {name: torch.cat(parts) for name, parts in found.items()}


def interval(differences: Tensor) -> tuple[float, float]:
    """Return the central 95 % of the differences."""
    low, high = differences.quantile(torch.tensor([TAIL, 1 - TAIL], dtype=differences.dtype)).tolist()
    return low, high


def is_no_worse(measure: str, low: float, high: float) -> bool:
    """Return whether an interval of a difference to the reference lies within the margin."""
    margin = MARGINS[measure]
    return low > -margin if measure == "auroc" else high < margin


def pooled_logs(arrays: Arrays, part: str) -> Tensor:
    """Return the logarithms of the mean probabilities, `[samples, classes]`."""
    if f"{part}/members" not in arrays:
        probabilities = torch.from_numpy(arrays[f"{part}/probabilities"]).double()
        # Half precision has zeros below 6e-8.
        return probabilities.clamp(min=1e-8).log()
    members = torch.from_numpy(arrays[f"{part}/members"]).double().log_softmax(2)
    weights = torch.from_numpy(arrays["weights"]).double().log()
    return (members + weights[:, None, None]).logsumexp(0)


def fit_factor(nll: Callable[[float], Tensor]) -> float:
    """Return the factor, from 1/4 to 4, with the lowest mean NLL of validation data."""
    grid = torch.logspace(-2, 2, 161, base=2, dtype=torch.float64).tolist()
    return min(grid, key=lambda factor: float(nll(factor).mean()))


def calibrated_classes(arrays: Arrays, validation_y: Tensor, test_y: Tensor) -> tuple[Tensor, Tensor]:
    """Return NLL and gaps of the test samples after temperature scaling of the mean probabilities."""
    held, test = pooled_logs(arrays, "validation"), pooled_logs(arrays, "test")

    def nll(logs: Tensor, target: Tensor, temperature: float) -> Tensor:
        return -(logs / temperature).log_softmax(1).gather(1, target[:, None])[:, 0]

    temperature = fit_factor(lambda factor: nll(held, validation_y, factor))
    probabilities = (test / temperature).softmax(1)
    confidence, labels = probabilities.max(1)
    return nll(test, test_y, temperature), class_gaps(confidence, labels == test_y)


def calibrated_numbers(arrays: Arrays) -> tuple[Tensor, Tensor]:
    """Return NLL and gaps of the test samples, as one Gaussian whose variance is scaled."""

    def parts(name: str) -> tuple[Tensor, Tensor]:
        error = torch.from_numpy(arrays[f"{name}/error"]).double()
        return error, torch.from_numpy(arrays[f"{name}/variance"]).double()

    def nll(error: Tensor, variance: Tensor, factor: float) -> Tensor:
        return (error.square() / (factor * variance) + (2 * torch.pi * factor * variance).log()) / 2

    factor = fit_factor(lambda candidate: nll(*parts("validation"), candidate))
    error, variance = parts("test")
    below = torch.special.ndtr(-error / (factor * variance).sqrt())
    return nll(error, variance, factor), interval_gaps(below)


def with_distance(run: Arrays, classes: Tensor) -> Arrays:
    """Return the arrays of a run with the distance of outputs from the classes as one more score.

    It is fitted on validation data. The score of validation data itself comes from a fit on the other half.
    """
    if "validation/members" not in run:
        return run
    parts = [key.removesuffix("/members") for key in run if key.endswith("/members")]
    outputs = {part: torch.from_numpy(run[f"{part}/members"]).movedim(0, 1).flatten(1) for part in parts}
    outputs = {part: values.double() for part, values in outputs.items()}
    held = outputs.pop("validation")
    fitted = fit_distance(held, classes)
    found = {part: distance(values, *fitted) for part, values in outputs.items()}
    even = torch.arange(len(held)) % 2 == 0
    found["validation"] = torch.empty(len(held), dtype=torch.float64)
    for half in (even, ~even):
        found["validation"][~half] = distance(held[~half], *fit_distance(held[half], classes[half]))
    return run | {f"{part}/score_mahalanobis": values.numpy() for part, values in found.items()}


def chosen_score(runs: Sequence[Arrays]) -> str:
    """Return the score that tells changed validation samples best from validation samples, over all seeds."""
    names = [key.split("/")[1] for key in runs[0] if key.startswith("proxies/score_")]

    def area(name: str) -> float:
        areas = []
        for run in runs:
            held, changed = (torch.from_numpy(run[f"{part}/{name}"]) for part in ("validation", "proxies"))
            areas.append(auroc(held, changed))
        return sum(areas) / len(areas)

    return max(names, key=area)


def read_outcome(runs: Sequence[Arrays], ood: str, score: str, calibrated: Any = None) -> Outcome:
    """Stack the runs of one configuration.

    Args:
        runs: Arrays of every seed.
        ood: Name of the out-of-distribution set.
        score: Name of the score.
        calibrated: The targets of validation and test data for calibrated predictions; None for raw ones.
    """
    nll, gaps = [], []
    for run in runs:
        is_class = "test/correct" in run
        if calibrated is not None:
            pair = calibrated_classes(run, *calibrated) if is_class else calibrated_numbers(run)
        elif is_class:
            confidence, correct = (
                torch.from_numpy(run[f"test/{name}"]) for name in ("confidence", "correct")
            )
            pair = torch.from_numpy(run["test/nll"]), class_gaps(confidence, correct)
        else:
            pair = torch.from_numpy(run["test/nll"]), interval_gaps(torch.from_numpy(run["test/below"]))
        nll.append(pair[0])
        gaps.append(pair[1])
    inside = torch.stack([torch.from_numpy(run[f"test/{score}"]) for run in runs])
    outside = torch.stack([torch.from_numpy(run[f"ood_{ood}/{score}"]) for run in runs])
    return Outcome(torch.stack(nll), torch.stack(gaps), inside, outside)


def load_runs(store: Store, task: str) -> dict[str, dict[int, tuple[Arrays, Arrays]]]:
    """Return line and outcomes of every run of a task, by configuration and seed."""
    found: dict[str, dict[int, tuple[Arrays, Arrays]]] = {}
    for line in store.lines(RUNS):
        path = store.outcomes / f"{line['key']}.npz"
        if line["task"] == task and path.exists():
            with np.load(path) as archive:
                arrays = {name: archive[name] for name in archive.files}
            found.setdefault(line["configuration"], {})[line["seed"]] = (line, arrays)
    return found


def compare(
    runs: dict[str, dict[int, tuple[Arrays, Arrays]]], name: str, ood: str, targets: tuple[Tensor, Tensor]
) -> dict[str, Any]:
    """Compare a configuration with the reference on the seeds that both have."""
    seeds = sorted(runs[name].keys() & runs[REFERENCE].keys())
    lines = [runs[name][seed][0] for seed in seeds]
    held = targets[0]
    # Numbers have no classes: their outputs are one group.
    classes = torch.zeros(len(held), dtype=torch.long) if held.is_floating_point() else held.flatten()
    pair = [[with_distance(runs[which][seed][1], classes) for seed in seeds] for which in (name, REFERENCE)]
    fixed = "score_entropy" if "proxies/score_entropy" in pair[0][0] else "score_variance"
    picked = [chosen_score(own) for own in pair]
    row: dict[str, Any] = {
        "configuration": name,
        "seeds": len(seeds),
        "multiply_adds_ratio": lines[0]["multiply_adds_ratio"],
        "train_ratio": lines[0]["train_multiply_adds"] / runs[REFERENCE][seeds[0]][0]["train_multiply_adds"],
        "score": picked[0].removeprefix("score_"),
    }
    kinds = {
        "raw": ([fixed, fixed], None),
        "calibrated": ([fixed, fixed], targets),
        "chosen": (picked, None),
    }
    for kind, (scores, calibrated) in kinds.items():
        outcomes = [
            read_outcome(own, ood, score, calibrated) for own, score in zip(pair, scores, strict=True)
        ]
        means = estimates(outcomes[0])
        draws = paired_differences(*outcomes) if name != REFERENCE else {}
        for measure in MARGINS:
            cell: dict[str, Any] = {"mean": float(means[measure].mean())}
            if name != REFERENCE:
                low, high = interval(draws[measure])
                cell |= {"low": low, "high": high, "no_worse": is_no_worse(measure, low, high)}
            row[f"{kind}_{measure}"] = cell
    return row


def shown(cell: dict[str, Any]) -> str:
    """Return `0.458 (−0.012 … +0.003) ✓`."""
    text = f"{cell['mean']:.3f}"
    if "low" in cell:
        text += f" ({cell['low']:+.3f} … {cell['high']:+.3f}){' ✓' * cell['no_worse']}"
    return text.replace("-", "−")


COLUMNS = {
    "NLL": "raw_nll",
    "calibration error": "raw_ece",
    "AUROC": "raw_auroc",
    "NLL, calibrated": "calibrated_nll",
    "calibration error, calibrated": "calibrated_ece",
    "AUROC, chosen score": "chosen_auroc",
}


def verdict(row: dict[str, Any]) -> str:
    """Return whether a cheap configuration is no worse in all three measures, and by which score."""
    if row["configuration"] == REFERENCE:
        return "–"
    if row["multiply_adds_ratio"] > CHEAP:
        return "too costly"
    if row["seeds"] < FEWEST_SEEDS:
        return f"open: {row['seeds']} of {FEWEST_SEEDS} seeds"
    fine = row["raw_nll"]["no_worse"] and row["raw_ece"]["no_worse"]
    if fine and row["raw_auroc"]["no_worse"]:
        return "**no worse**"
    return "**no worse**, by the chosen score" if fine and row["chosen_auroc"]["no_worse"] else "not shown"


def markdown(task: str, rows: list[dict[str, Any]]) -> str:
    """Return the table of one task."""
    heads = ["configuration", "seeds", "multiply-adds", "training", *COLUMNS, "verdict"]
    lines = [f"### {task}", "", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        cells = [
            f"`{row['configuration']}`",
            str(row["seeds"]),
            f"{row['multiply_adds_ratio']:.2f} ×",
            f"{row['train_ratio']:.2f} ×",
        ]
        cells += [shown(row[key]) for key in COLUMNS.values()]
        lines.append("| " + " | ".join([*cells, verdict(row)]) + " |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Compare what is done, print the tables and keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    parser.add_argument("--outcomes", type=Path, default=FOLDER / "outcomes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    store = Store(options.results, options.outcomes)
    path = options.results / "moonshot_table.json"
    # Outcomes stay on the machine of the runs: tasks without them keep their rows.
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["tasks"] if path.exists() else {}
    for name, study in STUDIES.items():
        runs = load_runs(store, name)
        if REFERENCE not in runs:
            continue
        task = study.load()
        targets = task.validation.y, task.test.y
        common = [one for one in study.configurations if runs.get(one, {}).keys() & runs[REFERENCE].keys()]
        rows = [compare(runs, one, study.ood, targets) for one in common]
        kept[name] = rows
        print(markdown(name, rows), flush=True)
    text = json.dumps({"command": "python benchmarks/moonshot_table.py", "tasks": kept}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
