"""compare: train and measure several methods on one task; continue a run that was killed."""

import contextlib
import functools
import math
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from pluribus.comparison import record
from pluribus.comparison.decisions import check_costs
from pluribus.comparison.diagnosis import doctor
from pluribus.comparison.display import Display, Stage, trained
from pluribus.comparison.evaluation import evaluate
from pluribus.comparison.locking import locked
from pluribus.comparison.record import Record, key_of
from pluribus.comparison.workers import Lost, Report, Workers, silent
from pluribus.conversion import convert
from pluribus.data.task import Task, check_task
from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.method import Method
from pluribus.methods.single import Single
from pluribus.metrics.costs import Costs
from pluribus.ranges import check
from pluribus.training import Training, train
from pluribus.training.work import train_multiply_adds

Build = Callable[[], nn.Module]

ERROR_FILE = "error.txt"


@dataclass(frozen=True)
class Job:
    """One run: a method, a seed, and all else that defines it."""

    build: Build
    task: Task
    method: Method
    seed: int
    training: Training
    network: str
    out: Path
    shifted: bool = True
    usual_steps: int = 1
    """Steps of a method without a recipe, by which the cost of training is divided."""
    costs: Costs | None = None
    """Costs of decisions. They are no part of the key, because reports compute them anew."""

    @property
    def key(self) -> str:
        """Return the key of its record: equal settings have equal keys."""
        return key_of(*self.settings, self.shifted)

    @property
    def settings(self) -> tuple[dict[str, Any], str, str, int, dict[str, Any]]:
        """Return the settings in the order of the fields of `Record`."""
        return self.method.to_dict(), repr(self.task), self.network, self.seed, self.training.to_dict()

    @property
    def title(self) -> str:
        """Return the name of the run for the terminal."""
        return f"{self.method.kind()} seed {self.seed}"

    @property
    def folder(self) -> Path:
        """Return the folder of its checkpoint and its trained ensemble."""
        return self.out / "runs" / f"{self.method.kind()}-{self.seed}-{self.key}"


def compare(
    build: Build,
    task: Task,
    methods: Sequence[Method],
    *,
    seeds: int = 3,
    training: Training | None = None,
    out: str | Path = "pluribus_runs/compare",
    network: str | None = None,
    workers: int = 1,
    shifted: bool = True,
    show: bool = True,
    recipes: bool = True,
    costs: Costs | None = None,
) -> list[Record]:
    """Train and measure every method with every seed. Finished runs are not repeated.

    Args:
        build: Makes the network; called once for each run, with torch's seed set.
        task: The data.
        methods: The methods to compare. Costs are relative to `Single()`, in the list or not.
        seeds: Runs of each method, at least 1.
        training: Settings of training; its seed is replaced by that of the run.
        out: A folder for `records.jsonl` and the runs.
        network: Name of the network in the records; by default the name of `build`.
        workers: Number of processes, each with one thread; 1 runs in this process.
        shifted: Measure on shifted data too, which takes longest.
        show: Show progress.
        recipes: Train each method by its `recipe()`, most often longer, instead of all alike. Records have
            the cost of training either way.
        costs: What wrong answers and deferring cost, for the records' `decisions`.

    Returns:
        One record for each run, in the order of methods and seeds. A failed run has its reason in `error`.

    Raises:
        SettingError: an argument is out of range, or `build` is no function.
    """
    check("seeds", seeds, int, at_least=1)
    check("workers", workers, int, at_least=1)
    check_task(task)
    check_costs(costs, task)
    _check_contestants(build, methods)
    name = network or str(getattr(build, "__name__", type(build).__name__))
    check("recipes", recipes, bool)
    usual = (training or Training()).resolved(len(task.train))
    steps = usual.budget(len(task.train)).steps
    jobs = []
    for method in methods:
        own = usual.following(method.recipe(), len(task.train)) if recipes else usual
        for seed in range(seeds):
            seeded_training = replace(own, seed=seed)
            settings = (build, task, method, seed, seeded_training, name, Path(out), shifted, steps, costs)
            jobs.append(Job(*settings))
    finished = _finished(Path(out))
    waiting = [job for job in jobs if job.key not in finished]
    with (
        Display(len(jobs), len(jobs) - len(waiting), show) as display,
        # Closed by name: after Ctrl-C the traceback keeps the generator alive, and with it the workers.
        contextlib.closing(_run_all(waiting, workers, display)) as results,
    ):
        for job, done in results:
            display.finish(job.title, done.error or "done")
    records = {one.key: one for one in record.read([Path(out)])}
    return [records[job.key] for job in jobs]


def _check_contestants(build: Any, methods: Any) -> None:
    """Raise `SettingError` unless `build` is a factory and `methods` are methods."""
    expected = "methods must be a list of Methods such as [Single()]"
    if isinstance(methods, Method):
        raise SettingError(f"{expected}, got {methods!r} alone. Put it into a list.")
    if not methods:
        raise SettingError(f"{expected}, got none.")
    for method in methods:
        if not isinstance(method, Method):
            raise SettingError(f"{expected}, got {method!r} among them.")
    # A module would share its weights between runs, and is callable too.
    if isinstance(build, nn.Module) or not callable(build):
        raise SettingError(
            "build must be a function that makes the network anew for each run, got "
            f"{type(build).__name__}. Give `lambda: ...`."
        )


def run(job: Job, report: Report = silent) -> Record:
    """Train and measure one method with one seed, unless another process has done so meanwhile.

    Args:
        job: The run.
        report: Callback for lines that a user should see, and for stages of the run.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    waiting = f"waiting for another process that is running it in {job.folder}"
    with locked(job.folder / "lock", lambda: report(waiting)):
        done = _finished(job.out).get(job.key)
        if done is not None:
            return done
        try:
            result = _measure(job, report)
            (job.folder / ERROR_FILE).unlink(missing_ok=True)
        # One failing method must not end the comparison.
        except Exception as error:
            # A full disk may be the reason, and then this file cannot be written either.
            with contextlib.suppress(OSError):
                (job.folder / ERROR_FILE).write_text(traceback.format_exc(), encoding="utf-8")
            result = _failed(job, f"{type(error).__name__}: {error}")
        record.append(job.out, result)
    return result


def _failed(job: Job, error: str) -> Record:
    return Record(job.key, *job.settings, error=error)


def _measure(job: Job, report: Report) -> Record:
    start = time.perf_counter()
    with seeded(job.seed):
        network = job.build()
    options: dict[str, Any] = {
        "likelihood": job.task.likelihood,
        "example": job.task.train.x[:2],
        "seed": job.seed,
    }
    ensemble = convert(network, job.method, **options)

    epochs = job.training.budget(len(job.task.train)).epochs

    def report_epoch(row: dict[str, float]) -> None:
        report(trained(int(row["epoch"]), epochs, row["loss"]))

    rows = train(ensemble, job.task, job.training, out=job.folder, show=False, on_epoch=report_epoch)
    ensemble.save(job.folder / "ensemble")
    seconds = {"training": time.perf_counter() - start}
    # Costs are relative to the plain network, measured on the same device.
    single = convert(network, Single(), **options).to(ensemble.device)
    measured = evaluate(
        ensemble,
        job.task,
        single=single,
        shifted=job.shifted,
        network=job.network,
        training=job.training,
        costs=job.costs,
    )
    history = {name: [row[name] for row in rows] for name in rows[0]}
    training_cost = _training_cost(job, ensemble, single, int(rows[-1]["step"]))
    return replace(
        measured,
        cost=measured.cost | training_cost,
        seconds=seconds | measured.seconds,
        findings=[asdict(one) for one in doctor(ensemble, job.task, history=rows)],
        history=history,
    )


def _training_cost(job: Job, ensemble: Ensemble, single: Ensemble, steps: int) -> dict[str, float]:
    """Return the multiply-adds of training, and their ratio to those of the single network."""
    found = train_multiply_adds(ensemble, job.task, job.training, steps)
    # The single network is trained without a recipe.
    base = train_multiply_adds(single, job.task, job.training, job.usual_steps)
    ratio = found / base if base else math.nan
    return {"train_multiply_adds": found, "train_multiply_adds_ratio": ratio}


def _finished(out: Path) -> dict[str, Record]:
    if not (out / record.FILE).exists():
        return {}
    return {one.key: one for one in record.read([out]) if not one.error}


def _run_all(jobs: Sequence[Job], workers: int, display: Display) -> Generator[tuple[Job, Record]]:
    """Yield each job with its record, in the order in which they finish."""

    def note(job: Job, note: str | Stage) -> None:
        display.note(job.title, note)

    def retried(job: Job, reason: str) -> None:
        note(job, f"its worker {reason}; running it again")

    # A process of its own takes seconds to start, and gains nothing for one job.
    if workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, run(job, functools.partial(note, job))
        return
    with Workers(run, jobs, workers, on_note=note, on_retry=retried) as pool:
        for job, result in pool.results():
            if isinstance(result, Lost):
                result = _record_lost(job, result)
            yield job, result


def _record_lost(job: Job, lost: Lost) -> Record:
    """Append the record of a run whose workers were all killed, and return it."""
    failed = _failed(
        job, f"its worker {lost.reason}, again when run once more. Use fewer workers if memory ran out."
    )
    record.append(job.out, failed)
    return failed
