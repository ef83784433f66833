"""compare: train and measure several methods on one task; continue a run that was killed."""

import contextlib
import functools
import importlib.util
import logging
import math
import tempfile
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from pluribus.comparison import record
from pluribus.comparison.decisions import check_costs
from pluribus.comparison.delivery import Delivery, read_files, write_files
from pluribus.comparison.devices import see_one_device
from pluribus.comparison.diagnosis import doctor
from pluribus.comparison.display import Display, Stage, trained
from pluribus.comparison.evaluation import evaluate
from pluribus.comparison.executors import LOCAL, check_executor, is_cancelled, opened
from pluribus.comparison.locking import locked
from pluribus.comparison.record import Record, key_of
from pluribus.comparison.run_folder import ENSEMBLE, RUNS, write_run
from pluribus.comparison.submission import ONE_RUN, Submission
from pluribus.comparison.train_for import trainings
from pluribus.comparison.workers import Lost, Report, Workers, silent
from pluribus.conversion import convert
from pluribus.data.task import Task, check_task
from pluribus.ensemble import Ensemble
from pluribus.errors import PluribusError, SettingError
from pluribus.fingerprint import digest
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.method import Method
from pluribus.method_text import read_method, split_outside_brackets
from pluribus.methods.single import Single
from pluribus.metrics.costs import Costs
from pluribus.ranges import check
from pluribus.training import Training, train
from pluribus.training.hardware import Hardware
from pluribus.training.work import train_multiply_adds
from pluribus.writing import write_words

Build = Callable[[], nn.Module]

ERROR_FILE = "error.txt"
AUTOMATIC = Hardware()

logger = logging.getLogger("pluribus")


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
    digest: str = ""
    """Digest of the network, by which a changed one is told from that of an earlier comparison."""
    costs: Costs | None = None
    """Costs of decisions. They are no part of the key, because reports compute them anew."""
    hardware: Hardware = AUTOMATIC
    """Device and precision. Only another precision than float32 is part of the key."""
    train_for: str = "recipe"
    """What was held equal; any but the default is kept in the record."""
    source: tuple[str, Sequence[str]] | None = None
    """Name and options of the task on the command line, for `run.json`."""

    @property
    def key(self) -> str:
        """Return the key of its record: equal settings and equal networks have equal keys."""
        return key_of(*self.settings, self.shifted, self.task.fingerprint, self.digest)

    @property
    def settings(self) -> tuple[dict[str, Any], str, str, int, dict[str, Any]]:
        """Return the settings in the order of the fields of `Record`."""
        trained = self.training.to_dict()
        if not self.hardware.is_plain:
            trained["precision"] = self.hardware.precision
        if self.train_for != "recipe":
            trained["train_for"] = self.train_for
        return self.method.to_dict(), repr(self.task), self.network, self.seed, trained

    @property
    def title(self) -> str:
        """Return the name of the run for the terminal."""
        return f"{self.method.kind()} seed {self.seed}"

    @property
    def folder(self) -> Path:
        """Return the folder of its checkpoint and its trained ensemble."""
        return self.out / RUNS / f"{self.method.kind()}-{self.seed}-{self.key}"


@dataclass(frozen=True)
class Place:
    """Processes or an executor that compute the runs of a comparison.

    Attributes:
        workers: Processes of this machine.
        executor: Used in place of them, if there is one.
        devices: GPUs of which each worker has one.
    """

    workers: int = 1
    executor: Executor | str | None = None
    devices: int = 1

    @property
    def is_here(self) -> bool:
        """Return whether runs are computed in this process, one after the other."""
        return self.executor is None and self.workers == 1


def compare(
    build: Build,
    task: Task,
    methods: str | Sequence[Method | str],
    *,
    seeds: int = 3,
    training: Training | None = None,
    out: str | Path = "pluribus_runs/compare",
    network: str | None = None,
    workers: int = 1,
    shifted: bool = True,
    show: bool = True,
    recipes: bool = True,
    train_for: str = "recipe",
    costs: Costs | None = None,
    hardware: Hardware | None = None,
    budget: str = "",
    metric: str | None = None,
    source: tuple[str, Sequence[str]] | None = None,
    executor: Executor | str | None = None,
) -> list[Record]:
    """Train and measure every method with every seed. Finished runs are not repeated.

    Args:
        build: Makes the network; called once for each run, with torch's seed set, and once before, to tell
            whether finished runs are of the same network.
        task: The data.
        methods: The methods to compare, or a text such as `single,deep_ensembles(members=5)`. Costs are
            relative to `Single()`, in the list or not.
        seeds: Runs of each method, at least 1.
        training: Settings of training; its seed is replaced by that of the run.
        out: A folder for `records.jsonl` and the runs.
        network: Name of the network in the records; by default the name of `build`.
        workers: Number of processes, each with one thread; 1 runs in this process.
        shifted: Measure on shifted data too, which takes longest.
        show: Show progress, then print the table and the recommendation, and write `report.html`.
        recipes: Train each method by its `recipe()`, most often longer, instead of all alike. Records have
            the cost of training either way.
        train_for: What is held equal: `recipe` nothing; `steps` the steps of the optimizer; `compute` the
            multiply-adds of training, those of the most expensive method at the usual steps; `convergence`
            trains each method until its validation score no longer improves.
        costs: What wrong answers and deferring cost, for the records' `decisions`.
        hardware: Devices, of which each worker has one, and precision; by default a GPU or the CPU.
        budget: Limits of cost for the recommendation, as `multiply_adds<=1.5x,parameters<=2M`.
        metric: The metric to recommend by; by default the NLL, or RMSE where there is none.
        source: Name and options of the task on the command line, which `run.json` of each run keeps.
        executor: Where the runs are computed, in place of `workers`: any `concurrent.futures.Executor`, or
            `dask://host:port`, `slurm://?slurm_partition=gpu`. Its workers need no common folder.

    Returns:
        One record for each run, in the order of methods and seeds. A failed run has its reason in `error`.

    Raises:
        SettingError: an argument is out of range, or `build` is no function.
    """
    check("seeds", seeds, int, at_least=1)
    check("workers", workers, int, at_least=1)
    check_executor(executor)
    check_task(task)
    check_costs(costs, task)
    methods = _contestants(build, methods)
    name = network or _name_of(build)
    check("recipes", recipes, bool)
    usual = (training or Training()).suited_to(task.train).resolved(len(task.train))
    steps = usual.budget(len(task.train)).steps
    devices, digested = hardware or AUTOMATIC, _digest(build, task)
    place = Place(workers, None if executor == LOCAL else executor, devices.devices)
    jobs: list[Job] = []
    lengths = trainings(build, task, methods, usual, train_for, recipes)
    for method, own in zip(methods, lengths, strict=True):
        for seed in range(seeds):
            own_device = devices.for_run(len(jobs)) if place.is_here else devices.for_worker()
            common = (Path(out), shifted, steps, digested, costs, own_device, train_for, source)
            jobs.append(Job(build, task, method, seed, replace(own, seed=seed), name, *common))
    records = _run_jobs(jobs, place, show)
    if show:
        _present(Path(out), [job.key for job in jobs], budget, metric, costs)
    return records


def _run_jobs(jobs: Sequence[Job], place: Place, show: bool) -> list[Record]:
    """Run the jobs that are not finished, and return the records of all."""
    out = jobs[0].out
    finished = _finished(out)
    waiting = [job for job in jobs if job.key not in finished]
    with (
        Display(len(jobs), len(jobs) - len(waiting), show) as display,
        # Closed by name: after Ctrl-C the traceback keeps the generator alive, and with it the workers.
        contextlib.closing(_run_all(waiting, place, display)) as results,
    ):
        for job, done in results:
            display.finish(job.title, done.error or "done")
    records = {one.key: one for one in record.read([out])}
    return [records[job.key] for job in jobs]


def _present(out: Path, keys: Sequence[str], budget: str, metric: str | None, costs: Costs | None) -> None:
    """Print the table and the recommendation, and write the page, as far as their packages are installed."""
    # The report reads records and imports this package. Its packages are extras of the library.
    if importlib.util.find_spec("rich") is None or importlib.util.find_spec("plotly") is None:
        logger.warning("no table and no page: install pluribus with the extra cli")
        return
    from pluribus.report.presenting import present

    present(out, keys, budget, metric, costs)


def _name_of(build: Callable[..., object]) -> str:
    """Return the name of the function that builds the network; `network` where it has none."""
    name = str(getattr(build, "__name__", type(build).__name__))
    return "network" if name == "<lambda>" else name


def _contestants(build: Any, methods: Any) -> list[Method]:
    """Return the methods, from text too; raise `SettingError` for others, or unless `build` is a factory."""
    expected = "methods must be a list of Methods such as [Single()]"
    if isinstance(methods, Method):
        raise SettingError(f"{expected}, got {methods!r} alone. Put it into a list.")
    if not methods:
        raise SettingError(f"{expected}, got none.")
    if isinstance(methods, str):
        methods = split_outside_brackets(methods)
    found = [read_method(one) if isinstance(one, str) else one for one in methods]
    for method in found:
        if not isinstance(method, Method):
            raise SettingError(f"{expected}, got {method!r} among them.")
    # A module would share its weights between runs, and is callable too.
    if isinstance(build, nn.Module) or not callable(build):
        raise SettingError(
            "build must be a function that makes the network anew for each run, got "
            f"{type(build).__name__}. Give `lambda: ...`."
        )
    return found


def _digest(build: Build, task: Task) -> str:
    """Return the digest of the network that `build` makes; empty if it fails."""
    try:
        with seeded(0):
            network = build()
        single = convert(network, Single(), task.likelihood, example=task.train.example_for(network))
        return digest(single, task.train.example().inputs)
    # The user's code may raise anything. Each run raises it again, and its record has the reason.
    except Exception:
        return ""


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
                write_words(job.folder / ERROR_FILE, traceback.format_exc())
            result = _failed(job, f"{type(error).__name__}: {error}")
        record.append(job.out, result)
    return result


def _failed(job: Job, error: str) -> Record:
    return Record(job.key, *job.settings, data=job.task.fingerprint, error=error)


def _measure(job: Job, report: Report) -> Record:
    start = time.perf_counter()
    with seeded(job.seed):
        network = job.build()
    options: dict[str, Any] = {
        "likelihood": job.task.likelihood,
        "example": job.task.train.example_for(network),
        "seed": job.seed,
    }
    ensemble = convert(network, job.method, **options)

    epochs = job.training.budget(len(job.task.train)).epochs

    def report_epoch(row: dict[str, float]) -> None:
        report(trained(int(row["epoch"]), epochs, row["loss"]))

    fabric = job.hardware.fabric()
    rows = train(
        ensemble, job.task, job.training, out=job.folder, fabric=fabric, show=False, on_epoch=report_epoch
    )
    # Trained in any precision, all are measured in float32.
    ensemble.float()
    ensemble.save(job.folder / ENSEMBLE)
    task, given = job.source or (job.task.name, ())
    write_run(job.folder, task, given, job.network, job.training, job.task, ensemble)
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
        key=job.key,
        training=job.settings[-1],
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


def run_detached(job: Job) -> Delivery:
    """Train and measure one method with one seed in a temporary folder, and return all files of the run.

    Args:
        job: The run; nothing is written into its own folder.
    """

    def stop_if_cancelled(note: object) -> None:
        # The run then ends with an error, which nobody reads any more.
        if is_cancelled():
            raise PluribusError("the run was cancelled")

    with ONE_RUN, tempfile.TemporaryDirectory(prefix="pluribus-run-") as folder:
        moved = replace(job, out=Path(folder))
        result = run(moved, stop_if_cancelled)
        return Delivery(result, read_files(moved.folder))


def _accept(job: Job, delivery: Delivery) -> Record:
    """Write the files and the record of a run that was computed elsewhere, unless it is finished by now."""
    job.folder.mkdir(parents=True, exist_ok=True)
    with locked(job.folder / "lock", lambda: None):
        done = _finished(job.out).get(job.key)
        if done is not None:
            return done
        (job.folder / ERROR_FILE).unlink(missing_ok=True)
        write_files(job.folder, delivery.files)
        record.append(job.out, delivery.record)
    return delivery.record


def _run_all(jobs: Sequence[Job], place: Place, display: Display) -> Generator[tuple[Job, Record]]:
    """Yield each job with its record, in the order in which they finish."""

    def note(job: Job, note: str | Stage) -> None:
        display.note(job.title, note)

    def retried(job: Job, reason: str) -> None:
        note(job, f"its worker {reason}; running it again")

    if place.executor is not None and jobs:
        yield from _run_elsewhere(jobs, place.executor, retried)
        return
    # A process of its own takes seconds to start, and gains nothing for one job.
    if place.workers == 1 or len(jobs) < 2:
        for job in jobs:
            yield job, run(job, functools.partial(note, job))
        return
    prepare: Callable[[int], None] = silent
    if place.devices > 1:
        prepare = functools.partial(see_one_device, devices=place.devices)
    with Workers(run, jobs, place.workers, on_note=note, on_retry=retried, prepare=prepare) as pool:
        for job, result in pool.results():
            yield job, _record_lost(job, result) if isinstance(result, Lost) else result


def _run_elsewhere(
    jobs: Sequence[Job], executor: Executor | str, on_retry: Callable[[Job, str], None]
) -> Generator[tuple[Job, Record]]:
    """Yield each job with its record, computed by an executor and written here."""
    with (
        opened(executor, jobs[0].out) as made,
        Submission(run_detached, jobs, made, on_retry) as submission,
    ):
        for job, result in submission.results():
            yield job, _record_lost(job, result) if isinstance(result, Lost) else _accept(job, result)


def _record_lost(job: Job, lost: Lost) -> Record:
    """Append the record of a run whose workers were all killed, and return it."""
    failed = _failed(
        job, f"its worker {lost.reason}, again when run once more. Use fewer workers if memory ran out."
    )
    record.append(job.out, failed)
    return failed
