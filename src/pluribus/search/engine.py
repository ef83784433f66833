"""search: find the best ensembles for several objectives and a budget, in one process or many.

Every process that runs the same line takes trials from one queue until it is empty. Each can be killed at
any time; the same line run again goes on.
"""

import contextlib
import importlib.util
import json
import logging
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from pluribus.comparison.display import Display
from pluribus.comparison.locking import locked
from pluribus.comparison.record import Record
from pluribus.data.task import Task, check_task
from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.methods.deep_ensembles import DeepEnsembles
from pluribus.methods.mc_dropout import MCDropout
from pluribus.methods.packed_ensembles import PackedEnsembles
from pluribus.methods.single import Single
from pluribus.methods.single_architecture_ensemble import SAE
from pluribus.ranges import check
from pluribus.report.budget import Limit, parse_budget
from pluribus.search.candidate import AUTOMATIC, Build, Problem
from pluribus.search.fingerprint import ATTRIBUTE, check_fingerprint, fingerprint_parts, study_name
from pluribus.search.halving import Halving
from pluribus.search.making import make_space, read_space
from pluribus.search.objectives import Objective, parse_objectives
from pluribus.search.sizes import SIZES, size_axis
from pluribus.search.space import Space
from pluribus.search.storage import FILE, HEARTBEAT_SECONDS, SQLITE, Storage, check_installed, explaining
from pluribus.search.study import Study, Trial
from pluribus.training.hardware import Hardware
from pluribus.training.settings import Training
from pluribus.writing import replacing

METHODS = (Single(), SAE(), DeepEnsembles(), PackedEnsembles(), MCDropout())
"""Methods of a search if none are named: one of each idea, and none that draws for long."""
SPACE_FILE = "space.json"
LATENCY = "latency"
ONE_LINE_EACH = (
    "Run the same line once for each device, with CUDA_VISIBLE_DEVICES set; the processes share the trials."
)

logger = logging.getLogger("pluribus")


def search(
    build: Build,
    task: Task,
    methods: Sequence[Method] = METHODS,
    *,
    objectives: str | Sequence[str] = ("nll", "multiply_adds"),
    trials: int = 40,
    budget: str = "",
    space: Mapping[str, Any] | None = None,
    vary: Sequence[str] = (),
    enumerated: Sequence[str] = (),
    sampler: str = "tpe",
    storage: str | None = None,
    name: str | None = None,
    out: str | Path = "pluribus_runs/search",
    network: str | None = None,
    training: Training | None = None,
    recipes: bool = True,
    seed: int = 0,
    sampler_seed: int | None = None,
    halving: Halving | None = None,
    warm_start: Sequence[str | Path] = (),
    threads: int = 1,
    heartbeat: int = HEARTBEAT_SECONDS,
    grace: int | None = None,
    take: str = "",
    against: Sequence[str | Path] = (),
    shifted: bool = False,
    show: bool = True,
    source: tuple[str, Sequence[str]] | None = None,
    hardware: Hardware | None = None,
) -> Study:
    """Search for the best configurations of methods, within a budget; run again, it goes on.

    Args:
        build: Makes the network; called with `width=` or `depth=` if these vary.
        task: Data with validation samples, by which trials are judged. Test samples are used once, for the
            configurations of the final front.
        methods: One of each kind, whose declared settings vary; those given another value than their default
            stay as they are. Ignored if `space` is given.
        objectives: Names of metrics (`nll`, `ece`), of calibrated ones (`scaled_nll`) and of costs
            (`parameters`, `multiply_adds`); at least one is no cost.
        trials: How many configurations are trained in all, by all processes and runs of the same search.
        budget: Limits of cost, as `parameters<=1.5x,multiply_adds<=2M`. They are exact before training, and
            what they forbid is never trained.
        space: The space written by hand: by method, a list of values or the ends of each setting.
        vary: Settings of training that vary too, such as `lr`, and `width` and `depth` of the network.
        enumerated: Kinds of methods whose configurations are all tried, before any is drawn.
        sampler: tpe, improvement, gp, mobo or random.
        storage: `postgresql://user:password@host/database` for several machines; by default a file of SQLite
            in `out`.
        name: Of the study in the storage; by default made of task, network and objectives.
        out: A folder for the trained ensembles, the records and the page.
        network: Name of the network in records; by default the name of `build`.
        training: Settings of training, for all trials.
        recipes: Train each method by its `recipe()`, most often longer.
        seed: Of initial weights and training, for all trials.
        sampler_seed: Of the draws of the sampler in this process; None draws another each time.
        halving: Stops trials early that many others are better than; None lets all finish.
        warm_start: Folders of `compare`, whose trained ensembles of this task and network count as trials.
        threads: Of torch in this process.
        heartbeat: Seconds between signs of life, by which other machines know that a trial is running; at
            least 60, because a busy process is late with shorter ones.
        grace: Seconds without one after which a trial counts as lost; by default three heartbeats.
        take: Limits of cost of the ensemble in the folder `taken`, besides those of the budget.
        against: Folders of other searches with the same objectives, such as a random one, for the page.
        shifted: Measure the final front on shifted test data too.
        show: Show progress, then print the front and write `report.html`.
        source: Name and options of the task on the command line, for `run.json`.
        hardware: Device and precision of training; by default a GPU or the CPU. A process has one device.

    Raises:
        SettingError: an argument is wrong, a budget allows nothing, or the study was begun with another
            space, task or version.
        StorageError: the database cannot be reached.
        WriteError: the disk is full. The study is intact: free some space, and run it again.
    """
    check_task(task)
    check("trials", trials, int, at_least=1)
    check("threads", threads, int, at_least=1)
    check("seed", seed, int, at_least=0)
    chosen, limits = parse_objectives(objectives), parse_budget(budget)
    place = Storage(storage or f"{SQLITE}{Path(out) / FILE}", heartbeat, grace or 3 * heartbeat)
    check_installed(place.is_file)
    # Optuna is an extra, so that it is imported only here.
    from pluribus.search.samplers import Sampler

    drawn_by = Sampler(sampler, sampler_seed)
    known = network or str(getattr(build, "__name__", type(build).__name__))
    timed = _names_latency((*chosen, *limits, *parse_budget(take)))
    problem = Problem(
        build,
        task,
        known,
        training or Training(),
        Path(out),
        seed,
        recipes,
        source,
        timed,
        check_hardware(hardware),
    )
    searched = find_space(problem, methods, space, vary, enumerated)
    parts = fingerprint_parts(problem, searched, chosen, budget, drawn_by.is_flat)
    if show:
        print(f"space of the search:\n{textwrap.indent(str(searched), '    ')}", flush=True)
    with torch_threads(threads), explaining(place):
        from pluribus.search.queue import counts, quiet
        from pluribus.search.reading import read_trials
        from pluribus.search.samplers import silence
        from pluribus.search.stored_trials import check_stored, stored_parts
        from pluribus.search.warm_start import add_finished
        from pluribus.search.worker import Plan, Worker

        silence()
        study_id = name or study_name(problem, chosen)
        queue = open_queue(
            place,
            study_id,
            [one.direction for one in chosen],
            drawn_by.make(trials, searched, limits),
            problem.out,
        )
        with contextlib.closing(queue):
            with queue.locked():
                stored = stored_parts(queue, place)
                if stored is None:
                    queue.set_user_attr(ATTRIBUTE, parts)
            check_fingerprint(stored or parts, parts, study_id)
            check_stored(queue, place, searched, len(chosen), drawn_by.is_flat)
            _write_space(problem.out, parts)
            plan = Plan(
                searched, chosen, limits, trials, drawn_by.is_flat, halving, drawn_by.begins_with_defaults
            )
            add_finished(queue, problem, plan, warm_start)
            done = sum(counts(one) and one.state.is_finished() for one in queue.get_trials(deepcopy=False))
            with Display(trials, min(done, trials), show, verb="searching") as display, quiet():
                Worker(queue, problem, plan, display).work()
            found = read_trials(queue.get_trials(deepcopy=False), chosen)
            study = Study(problem, searched, chosen, limits, found, drawn_by.is_flat, sampler)
    return finish(study, take, against, shifted, show)


def find_space(
    problem: Problem,
    methods: Sequence[Method],
    space: Mapping[str, Any] | None,
    vary: Sequence[str],
    enumerated: Sequence[str],
) -> Space:
    """Return the space of a search: that written by hand, or the one that methods declare."""
    if space is not None:
        return read_space(space, problem.depths)
    for method in methods:
        if not isinstance(method, Method):
            raise SettingError(f"methods must be Methods such as SAE(), got {method!r} among them.")
    sizes = {name: size_axis(problem.build, problem.network, name) for name in SIZES if name in vary}
    trained = [name for name in vary if name not in SIZES]
    return make_space(methods, training=trained, sizes=sizes, depths=problem.depths, enumerated=enumerated)


def check_hardware(hardware: Hardware | None) -> Hardware:
    """Return the hardware of a process of a search; None is a GPU or the CPU.

    Raises:
        SettingError: there are several devices, or the machine does not have it.
    """
    chosen = hardware or AUTOMATIC
    chosen.check_one("a process of a search needs", ONE_LINE_EACH)
    chosen.fabric()
    return chosen


def _names_latency(given: Sequence[Objective | Limit]) -> bool:
    return any(one.name == LATENCY for one in given)


def open_queue(place: Storage, name: str, directions: Sequence[Any], sampler: Any, out: Path) -> Any:
    """Return the study of a name, made if it does not exist."""
    import optuna

    from pluribus.search.queue import Queue
    from pluribus.search.stored_trials import readable

    opened = place.open()
    with readable(place):
        # Two processes that begin at once must not make two studies.
        with place.locked(opened, name), contextlib.suppress(optuna.exceptions.DuplicatedStudyError):
            optuna.create_study(storage=opened, study_name=name, directions=list(directions))
        return Queue(name, place, opened, sampler, out)


def finish(study: Study, take: str, against: Sequence[str | Path], shifted: bool, show: bool) -> Study:
    """Measure the front on test data, take the best, and write the page; several processes take turns."""
    out = study.problem.out
    out.mkdir(parents=True, exist_ok=True)
    with locked(out / "finish.lock", lambda: None):
        final = study.measure_front(shifted)
        study.save()
        chosen = study.choose(take)
        study.take(chosen)
        if show:
            _present(study, chosen, final, against)
    return study


def _present(study: Study, chosen: Trial, final: Mapping[str, Record], against: Sequence[str | Path]) -> None:
    """Print the front, and write the page if its packages are installed."""
    if importlib.util.find_spec("rich") is None or importlib.util.find_spec("plotly") is None:
        logger.warning("no table and no page: install pluribus with the extra cli")
        return
    from pluribus.search.presenting import present

    present(study, chosen, final, [Path(one) for one in against])


def _write_space(out: Path, parts: Mapping[str, Any]) -> None:
    """Write the space beside the study, for people and for the next search."""
    with replacing(out / SPACE_FILE) as unfinished:
        unfinished.write_text(json.dumps(parts["space"], indent=2) + "\n", encoding="utf-8")


@contextlib.contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Give torch a number of threads for the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
