"""The command `pluribus search`, in a file of its own because it imports PyTorch and Optuna."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pluribus.cli.commands import hint, writable
from pluribus.cli.parsing import default_model, parse_methods, resolve_task
from pluribus.cli.printing import console, say
from pluribus.report.budget import parse_budget
from pluribus.runs.named_network import Build
from pluribus.schema import Fields
from pluribus.search.engine import check_hardware
from pluribus.search.engine import search as run_search
from pluribus.search.halving import Halving
from pluribus.search.objectives import parse_objectives
from pluribus.search.study import model_option
from pluribus.training import Hardware, Training
from pluribus.untrusted import read_json


def search(
    *,
    objectives: str,
    trials: int,
    task: str,
    model: str | None,
    methods: str,
    space: Path | None,
    vary: str,
    enumerated: str,
    budget: str,
    take: str,
    sampler: str,
    storage: str | None,
    name: str | None,
    halving: bool,
    warm_start: Sequence[Path],
    against: Sequence[Path],
    epochs: int | None,
    steps: int | None,
    batch: int,
    rate: float,
    seed: int,
    recipes: bool,
    threads: int,
    accelerator: str,
    devices: int,
    precision: str,
    data_dir: Path | None,
    option: list[str] | None,
    out: Path | None,
) -> None:
    """Search for the best ensembles within a budget. Run again, or on other machines, it continues."""
    # Everything that can be wrong with the arguments is checked before the first trial.
    parse_objectives(objectives)
    parse_budget(budget)
    parse_budget(take)
    hardware = check_hardware(Hardware(accelerator, devices, precision))
    chosen = parse_methods(methods)
    data = resolve_task(task, data_dir, option)
    network = model or default_model(data)
    training = Training(epochs=epochs, batch=batch, lr=rate, steps=steps)
    written = None if space is None else read_space_file(space)
    build = Build(network, data)
    folder = writable(out or Path("pluribus_runs/search"))
    hint(task, data, option)
    study = run_search(
        build,
        data,
        chosen,
        objectives=objectives,
        trials=trials,
        budget=budget,
        take=take,
        space=written,
        vary=words(vary),
        enumerated=words(enumerated),
        sampler=sampler,
        storage=storage,
        name=name,
        out=folder,
        network=network,
        training=training,
        recipes=recipes,
        seed=seed,
        halving=Halving() if halving else None,
        warm_start=warm_start,
        against=against,
        threads=threads,
        source=(task, option or []),
        hardware=hardware,
    )
    failed = [trial for trial in study.trials if trial.state == "failed"]
    for trial in failed:
        say(f"warning: {trial.label} failed: {trial.reason}")
    model = model_option(study, study.choose(take))
    console.print(
        f"use it:  pluribus predict {folder} DATA{model}", highlight=False, markup=False, soft_wrap=True
    )


def words(text: str) -> list[str]:
    """Return the words of a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def read_space_file(file: Path) -> dict[str, Any]:
    """Return the space in a JSON file, which is untrusted; `read_space` checks what it says.

    Raises:
        CheckpointError: there is no such file, or it holds no object.
    """
    values: dict[str, Any] = read_json(file, Fields(others=True), "Name the file of a space with --space.")
    # A search writes this besides; whether the space is flat follows from the sampler.
    values.pop("flat", None)
    return values
