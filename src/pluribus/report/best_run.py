"""The run to use of a recommended configuration, and where a comparison stores it."""

from pathlib import Path

from pluribus.comparison.record import Record
from pluribus.comparison.run_folder import RUNS
from pluribus.report.recommendation import Recommendation


def best_run(found: Recommendation) -> Record | None:
    """Return the best run of the choice by the same quality; None where nothing is recommended."""
    if found.choice is None or found.judge is None:
        return None
    best, *others = found.choice.runs
    for run in others:
        if found.judge.better(found.judge.value(run), found.judge.value(best)):
            best = run
    return best


def run_folder(folder: Path, run: Record) -> Path:
    """Return where a comparison stores a run."""
    return folder / RUNS / f"{run.method['kind']}-{run.seed}-{run.key}"
