"""Run a candidate: train it, save it, measure it on validation data, and store the record.

Order: ensemble, record, and then the trial is told. A process that is killed between two of them leaves
nothing that the next one cannot use: training continues from its checkpoint, and a trial whose record exists
is answered by it.
"""

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from pluribus.comparison import record
from pluribus.comparison.evaluation import evaluate, measure_costs, versions
from pluribus.comparison.locking import locked
from pluribus.comparison.record import Record
from pluribus.comparison.run_folder import ENSEMBLE, FILE, write_run
from pluribus.data.signature import FILE as SIGNATURE
from pluribus.ensemble import Ensemble
from pluribus.loading import load
from pluribus.search.candidate import Candidate
from pluribus.search.validation import measure_validation
from pluribus.training import train
from pluribus.writing import replacing

VALIDATION = "validation"
"""Folder of the records of trials; those of test data lie in the folder of the search itself."""

OnEpoch = Callable[[Ensemble, Mapping[str, float]], None]


def stored_record(candidate: Candidate) -> Record | None:
    """Return the record of a finished run of this configuration; None if record or ensemble is missing."""
    found = _read(candidate.problem.out / VALIDATION).get(candidate.key)
    if found is None or not (candidate.folder / ENSEMBLE).is_dir():
        return None
    return found


def run_candidate(
    candidate: Candidate, ensemble: Ensemble | None, on_epoch: OnEpoch, on_wait: Callable[[], None]
) -> Record:
    """Return the record of a configuration: the stored one, or that of a training.

    Args:
        candidate: The configuration.
        ensemble: As `candidate.convert()` makes it; None converts.
        on_epoch: Callback with the ensemble and the row of each epoch; whatever it raises ends the run.
        on_wait: Called once if another process runs the same configuration.
    """
    candidate.folder.mkdir(parents=True, exist_ok=True)
    with locked(candidate.folder / "lock", on_wait):
        found = stored_record(candidate)
        if found is not None:
            return found
        made = _train(candidate, ensemble or candidate.convert(), on_epoch)
        record.append(candidate.problem.out / VALIDATION, made)
    return made


def _train(candidate: Candidate, ensemble: Ensemble, on_epoch: OnEpoch) -> Record:
    problem, training, start = candidate.problem, candidate.training, time.perf_counter()

    def ended(row: dict[str, float]) -> None:
        on_epoch(ensemble, row)

    rows = train(
        ensemble,
        problem.blind,
        training,
        out=candidate.folder,
        fabric=problem.hardware.fabric(),
        show=False,
        on_epoch=ended,
    )
    ensemble.float()
    ensemble.save(candidate.folder / ENSEMBLE)
    task, options = problem.source or (problem.task.name, ())
    write_run(candidate.folder, task, options, candidate.network, training, problem.task, ensemble)
    history = {name: [row[name] for row in rows] for name in rows[0]}
    return _measured(candidate, ensemble, history, time.perf_counter() - start)


def _measured(
    candidate: Candidate, ensemble: Ensemble, history: dict[str, list[float]], seconds: float
) -> Record:
    """Return the record of a trained ensemble on validation data."""
    problem = candidate.problem
    metrics, calibrated = measure_validation(ensemble, problem.blind)
    single = problem.single_on(ensemble.device)
    return Record(
        key=candidate.key,
        method=candidate.configuration.method.to_dict(),
        task=repr(problem.task),
        network=candidate.network,
        seed=problem.seed,
        training=problem.describe(candidate.training),
        data=problem.task.fingerprint,
        metrics=metrics,
        posthoc=calibrated,
        cost=measure_costs(ensemble, ensemble.freeze(), problem.blind, single, problem.timed),
        versions=versions(),
        seconds={"training": seconds},
        history=history,
    )


def adopt(candidate: Candidate, folder: Path) -> Record:
    """Take the trained ensemble of another run of the same configuration over, and measure it.

    Args:
        candidate: The configuration.
        folder: Of the run.
    """
    found = stored_record(candidate)
    if found is not None:
        return found
    for name in (FILE, SIGNATURE):
        with replacing(candidate.folder / name) as unfinished:
            shutil.copyfile(folder / name, unfinished)
    shutil.copytree(folder / ENSEMBLE, candidate.folder / ENSEMBLE, dirs_exist_ok=True)
    made = _measured(candidate, load_ensemble(candidate), {}, 0.0)
    record.append(candidate.problem.out / VALIDATION, made)
    return made


def load_ensemble(candidate: Candidate) -> Ensemble:
    """Return the trained and calibrated ensemble of a configuration, in eval mode.

    One that was trained on another machine, with a folder of its own, is trained again with the same seed.
    """
    if not (candidate.folder / ENSEMBLE).is_dir():
        run_candidate(candidate, None, lambda ensemble, row: None, lambda: None)
    network = candidate.problem.make(candidate.configuration.sizes)
    example = candidate.problem.task.train.example_for(network)
    return load(candidate.folder / ENSEMBLE, network, example=example).eval()


def final_record(candidate: Candidate, shifted: bool) -> Record:
    """Return the record on test data: the stored one, or that of the first and only look at them."""
    out = candidate.problem.out
    found = _read(out).get(candidate.key)
    if found is not None:
        return found
    ensemble = load_ensemble(candidate)
    measured = evaluate(
        ensemble,
        candidate.problem.task,
        single=candidate.problem.single_on(ensemble.device),
        shifted=shifted,
        network=candidate.network,
        training=candidate.training,
    )
    found = replace(measured, key=candidate.key, training=candidate.problem.describe(candidate.training))
    record.append(out, found)
    return found


def _read(folder: Path) -> dict[str, Record]:
    if not (folder / record.FILE).is_file():
        return {}
    return {one.key: one for one in record.read([folder]) if not one.error}
