"""Run the methods of `make demo` on scikit-learn's digits with three seeds: the numbers of the docs.

    python benchmarks/digits.py [--out FOLDER] [--read]

A small CNN on 300 training images, 350 steps and what the recipes of the methods add, three seeds, two
single-threaded workers. Costs are counted, not timed. All seeds share one division of the data, so the
standard errors are those of initial weights and training alone. A folder with the runs of `make demo` is
read, and only runs that are missing are trained; with `--read` nothing is trained, and methods without all
three seeds are left out.
"""

import argparse
import json
import math
from pathlib import Path
from statistics import fmean, stdev

from pluribus.cli import main as cli
from pluribus.cli.parsing import parse_methods
from pluribus.comparison import record
from pluribus.comparison.record import Record
from pluribus.method import Method
from pluribus.report.groups import label

RESULT = Path(__file__).parent / "results" / "digits.json"
STEPS, SEEDS = 350, 3
METHODS = f"{cli.DEMO},layer_ensembles(options=3,train_draws=3,draws={cli.DEMO_DRAWS})"
"""Those of the demo, and layer ensembles as they are by default: with options that start apart."""
COSTS = ("parameters_ratio", "multiply_adds_ratio", "train_multiply_adds_ratio")
SHOWN = (
    *("accuracy", "nll", "calibrated_nll", "ece", "shifted_nll", "auroc_chosen"),
    *("multiply_adds_ratio", "train_multiply_adds_ratio"),
)
"""Columns of the table that is printed."""
LIMIT = 4.3
"""Standard errors of a paired difference over three seeds that chance makes in 5 % of cases (Student's t)."""

Runs = dict[str, list[dict[str, float]]]


def numbers(one: Record) -> dict[str, float]:
    """Return what is compared: on test data, on shifted data, against photographs, and costs."""
    found = {name: one.metrics[name] for name in ("accuracy", "nll", "ece")}
    found |= {"calibrated_nll": one.posthoc["scaled_nll"], "calibrated_ece": one.posthoc["scaled_ece"]}
    for name in ("accuracy", "nll", "ece", "scaled_nll"):
        found[f"shifted_{name}"] = fmean(section[name] for section in one.shifted.values())
    for name, value in one.ood["photographs"].items():
        if name.startswith("auroc_"):
            found[name] = value
    return found | {name: one.cost[name] for name in COSTS}


def shown(values: list[float]) -> str:
    """Return mean ± standard error."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{fmean(values):.3f}±{error:.3f}"


def beyond_chance(runs: Runs, name: str, metric: str) -> str:
    """Return a mark where a method differs from the single network by more than chance makes."""
    pairs = zip(runs[name], runs["single"], strict=True)
    differences = [own[metric] - single[metric] for own, single in pairs]
    error = stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.inf
    if name == "single" or abs(fmean(differences)) <= LIMIT * error:
        return ""
    return " ↓" if fmean(differences) < 0 else " ↑"


def table(runs: Runs) -> str:
    """Return a table in Markdown; an arrow is a difference from one network beyond chance."""
    lines = [f"| method | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 1) + "|"]
    for name, found in runs.items():
        cells = []
        for metric in SHOWN:
            values = [one[metric] for one in found]
            is_ratio = metric.endswith("_ratio")
            cells.append(f"{fmean(values):.2f}" if is_ratio else shown(values))
            cells[-1] += "" if is_ratio else beyond_chance(runs, name, metric)
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run, or go on with, the comparison, keep the numbers of every run, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("pluribus_runs/compare"))
    parser.add_argument("--read", action="store_true")
    given = parser.parse_args()
    out = given.out
    if not given.read:
        cli.compare(methods=METHODS, steps=STEPS, out=out)
    records = sorted(record.read([out]), key=lambda one: one.seed)
    runs = {
        label(method.to_dict()): [numbers(one) for one in records if Method.from_dict(one.method) == method]
        for method in parse_methods(METHODS)
    }
    runs = {name: found for name, found in runs.items() if len(found) == SEEDS}
    result = {
        "command": "python benchmarks/digits.py",
        "task": records[0].task,
        "training": records[0].training,
        "runs": runs,
        "versions": records[0].versions,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(runs))


if __name__ == "__main__":
    main()
