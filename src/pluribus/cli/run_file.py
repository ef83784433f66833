"""`run.json`: the task and the network of a run, for `pluribus evaluate` and `pluribus predict`.

The file is untrusted. It may name built-in tasks and networks, which are looked up in registries. A task or
network of the user's own is code, and must be named on the command line again (`--task`, `--model`). Then it
is compared with the one in the file.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pluribus.backbones import BACKBONES
from pluribus.cli.parsing import resolve_task
from pluribus.comparison.run_folder import FILE, described, given_delimiter, read_run
from pluribus.data import TASKS
from pluribus.data.signature import FILE as SIGNATURE
from pluribus.data.signature import Signature
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import CheckpointError, InputError, SettingError
from pluribus.runs.checked_ensemble import load_checked
from pluribus.runs.named_network import Build
from pluribus.schema import shown
from pluribus.training import Training


@dataclass(frozen=True)
class Run:
    """A trained ensemble with its task.

    Attributes:
        ensemble: In eval mode.
        task: The data it was trained on.
        build: Makes its network anew.
        options: Options of the task, as on the command line.
        training: Settings of its training; None in runs of early versions.
    """

    ensemble: Ensemble
    task: Task
    build: Build
    options: list[str]
    training: Training | None


def load_run(folder: Path, data_dir: Path | None, task: str | None = None, model: str | None = None) -> Run:
    """Return the ensemble of a run, with its task.

    Args:
        folder: The folder that `pluribus train` wrote.
        data_dir: Where data sets lie.
        task: The user's own task, again; None where the run has a built-in one.
        model: The user's own network, likewise.
    """
    document = read_run(folder)
    task_name = trusted_name(folder, "task", document["task"], task, TASKS)
    model_name = trusted_name(folder, "model", document["model"], model, BACKBONES)
    options: list[str] = document["options"]
    try:
        data = resolve_task(task_name, data_dir, options)
    except InputError as error:
        needed = ", ".join((task_name, *options))
        raise InputError(f"{folder} needs the data that it was trained on ({needed}): {error}") from error
    _check_data(folder, document.get("data"), data)
    build = Build(model_name, data)
    network = build()
    example = data.train.example_for(network)
    ensemble = load_checked(folder, document, network, example)
    training = Training.from_dict(document["training"]) if "training" in document else None
    return Run(ensemble, data, build, options, training)


def load_for_prediction(
    folder: Path, data_dir: Path | None, task: str | None = None, model: str | None = None
) -> tuple[Ensemble, Signature]:
    """Return the ensemble of a run with its signature. The training data need not be there.

    Runs of earlier versions have no signature: for them, and where a task is named again, the data is read.
    """
    document = read_run(folder)
    if task is not None or not (folder / SIGNATURE).is_file():
        run = load_run(folder, data_dir, task, model)
        forward = run.ensemble.members.code.forward
        return run.ensemble, Signature.of(run.task, given_delimiter(run.options), forward)
    signature = Signature.load(folder)
    build = Build(trusted_name(folder, "model", document["model"], model, BACKBONES), signature)
    return load_checked(folder, document, build(), signature.example()), signature


def trusted_name(folder: Path, kind: str, recorded: str, given: str | None, registry: Iterable[str]) -> str:
    """Return the name to look up: that of the file if it is built in, else that of the command line.

    Raises:
        SettingError: the run was made with the user's own code, which was not named again or differs.
        CheckpointError: the file names something that there is not.
    """
    # A network may have a width besides its name: cnn(width=8).
    built_in = recorded.partition("(")[0] in registry
    if given is not None:
        # A comparison in Python knows a network by its name alone; its fingerprint is compared later.
        if given != recorded and (":" in recorded or built_in):
            raise SettingError(
                f"--{kind} must be what {folder} was made with, {shown(recorded)}, got {given!r}. "
                f"Give the same --{kind}."
            )
        return given
    if built_in:
        return recorded
    if ":" in recorded:
        # Without this refusal a file from somebody else would run any function of any installed package.
        raise SettingError(
            f"{folder} was made with a {kind} of your own, {shown(recorded)}, and code is never taken from a "
            f"file. If you trust it, name it again with --{kind}."
        )
    raise CheckpointError(
        f"{folder / FILE}: field {kind} must be built in, got {shown(recorded)}. "
        f"Name it with --{kind} package.module:function."
    )


def _check_data(folder: Path, before: dict[str, Any] | None, data: Task) -> None:
    if before is None:
        return
    for name, value in described(data).items():
        if before.get(name) != value:
            raise InputError(
                f"the task must be the one that {folder} was trained on, with {name} "
                f"{shown(before.get(name))}, got {shown(value)}. "
                "Restore the data and the options, or train again."
            )
