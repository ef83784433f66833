"""What `pluribus compare` finds on scikit-learn's digits, and two settings beside: the numbers of the docs.

    python benchmarks/digits.py

A small CNN on 300 training images, 30 epochs, three seeds, two single-threaded workers. Costs are counted,
not timed. All seeds share one division of the data, so the standard errors are those of initial weights and
training alone.
"""

import json
from pathlib import Path
from statistics import fmean

from pluribus.cli import main as cli
from pluribus.cli.parsing import parse_methods
from pluribus.comparison import record
from pluribus.comparison.record import Record
from pluribus.method import Method
from pluribus.report.groups import label

OUT = Path("pluribus_runs/compare")
RESULT = Path(__file__).parent / "results" / "digits.json"
BESIDE = "deep_ensembles(members=2),batch_ensemble(repeat=True)"
COSTS = ("parameters_ratio", "multiply_adds_ratio")


def numbers(one: Record) -> dict[str, float]:
    """What is compared: on test data, on shifted data, against photographs, and costs."""
    shifted, photographs = one.shifted.values(), one.ood["photographs"]
    return {
        **{name: one.metrics[name] for name in ("accuracy", "nll", "ece")},
        **{f"shifted_{name}": fmean(section[name] for section in shifted) for name in ("accuracy", "ece")},
        **{name: photographs[name] for name in ("auroc_entropy", "auroc_mutual_information")},
        **{name: one.posthoc[name] for name in ("temperature", "scaled_nll", "scaled_ece")},
        **{name: one.cost[name] for name in COSTS},
    }


def main() -> None:
    """Runs, or goes on with, both comparisons and keeps every run's numbers."""
    # The settings of the published table: few steps, the same for all methods.
    cli.compare(methods="all", epochs=30, recipes=False, out=OUT)
    cli.compare(methods=BESIDE, epochs=30, recipes=False, out=OUT)
    records = sorted(record.read([OUT]), key=lambda one: one.seed)
    order = [*parse_methods("all"), *parse_methods(BESIDE)]
    runs = {
        label(method.to_dict()): [numbers(one) for one in records if Method.from_dict(one.method) == method]
        for method in order
    }
    result = {
        "command": "python benchmarks/digits.py",
        "task": records[0].task,
        "training": records[0].training,
        "runs": runs,
        "versions": records[0].versions,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
