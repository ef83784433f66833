"""How much corruptions add to the error of patched networks, as a multiple of what they add to one network's.

    python benchmarks/relative_shift.py [--out FOLDER] [--read]

App. D.4 of Ensemble Model Patching on scikit-learn's digits: the runs of `make demo` with EMP, and ECMP with
as many draws. The first 200 test images have 19 corruptions at five severities; errors without corruption
are those of the same images. A folder with runs is read, and only those that are missing are trained; with
`--read` nothing is trained. Whatever else has three seeds in the folder is compared too.
"""

import argparse
import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

from pluribus.cli import main as cli
from pluribus.comparison import record
from pluribus.comparison.record import Record
from pluribus.data.digits_task import CORRUPTED
from pluribus.metrics.shift import (
    ShiftErrors,
    mean_corruption_error,
    relative_corruption_errors,
    relative_mean_corruption_error,
)
from pluribus.report.groups import label

RESULT = Path(__file__).parent / "results" / "relative_shift.json"
STEPS, SEEDS = 350, 3
METHODS = ("single", f"emp(draws={cli.DEMO_DRAWS})", f"ecmp(draws={cli.DEMO_DRAWS})")


def shift_errors(run: Record) -> ShiftErrors:
    """Return the errors of a run on the images that are corrupted, clean and corrupted."""
    assert run.outcomes is not None
    right = run.outcomes.columns["label"][:CORRUPTED] == run.outcomes.columns["target"][:CORRUPTED]
    corrupted: dict[str, list[float]] = defaultdict(list)
    for name, section in run.shifted.items():
        corrupted[name.split("/")[0]].append(1 - section["accuracy"])
    return ShiftErrors(1 - float(right.mean()), corrupted)


def shown(values: list[float]) -> str:
    """Return mean ± standard error."""
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return f"{fmean(values):.3f}±{error:.3f}"


def main() -> None:
    """Run what is missing, keep both ratios of every run, and print their means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("pluribus_runs/compare"))
    parser.add_argument("--read", action="store_true")
    given = parser.parse_args()
    if not given.read:
        cli.compare(methods=",".join(METHODS), steps=STEPS, out=given.out)
    of_all: dict[str, dict[int, ShiftErrors]] = defaultdict(dict)
    for run in sorted(record.read([given.out], outcomes=True), key=lambda one: one.seed):
        of_all[label(run.method)][run.seed] = shift_errors(run)
    errors = {name: by_seed for name, by_seed in of_all.items() if len(by_seed) == SEEDS}
    found: dict[str, dict[str, dict[str, float]]] = {}
    single = errors["single"]
    of_method: dict[str, dict[str, str]] = {}
    for name, by_seed in errors.items():
        for seed, own in by_seed.items():
            found.setdefault(name, {})[str(seed)] = {
                "clean error": own.clean,
                "mCE": mean_corruption_error(own, single[seed]),
                "relative mCE": relative_mean_corruption_error(own, single[seed]),
            } | {f"relative, {kind}": v for kind, v in relative_corruption_errors(own, single[seed]).items()}
        means = {key: shown([one[key] for one in found[name].values()]) for key in found[name]["0"]}
        of_method[name] = means
        print(
            name, len(by_seed), "seeds", {key: means[key] for key in ("clean error", "mCE", "relative mCE")}
        )
    result = {"command": "python benchmarks/relative_shift.py", "means": of_method, "runs": found}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
