"""The command line: compare, report, train, evaluate, predict, methods."""

import ast
import csv
import importlib
import inspect
import json
import math
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn

try:
    import typer
    from rich.console import Console
except ImportError as error:  # the command comes with the library, what it needs with an extra
    raise SystemExit("the command line needs typer and rich: install pluribus with the extra cli") from error

from pluribus import record
from pluribus.backbones import BACKBONES
from pluribus.comparison import compare as run_comparison
from pluribus.convert import convert
from pluribus.data import load_task
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import InputError, PluribusError, SettingError
from pluribus.evaluation import evaluate as run_evaluation
from pluribus.loading import load
from pluribus.method import Method
from pluribus.methods.single import Single
from pluribus.network.rehearsal import seeded
from pluribus.report.budget import parse_budget
from pluribus.report.groups import Group, group_records
from pluribus.report.page import write_figures, write_page
from pluribus.report.recommendation import check_metric
from pluribus.report.tables import make_table, print_table
from pluribus.settings import INFINITE, nearest
from pluribus.training import Training
from pluribus.training import train as run_training
from pluribus.training.loop import make_fabric

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
console = Console()
MOST_DRAWS = 16
"""Draws of any method where all are compared."""

Methods = Annotated[
    str,
    typer.Option(
        help="Names, with settings if need be: single,deep_ensembles(members=5); all have 16 draws at most."
    ),
]
TaskName = Annotated[str, typer.Option(help="A task by name, or package.module:function that makes one.")]
Model = Annotated[
    str | None, typer.Option(help="A backbone by name, or package.module:function that builds the network.")
]
DataDir = Annotated[
    Path | None, typer.Option(help="Where data sets lie; by default what PLURIBUS_DATA names.")
]
Options = Annotated[list[str] | None, typer.Option("--option", help="An option of the task, name=value.")]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the training set.")]
Batch = Annotated[int, typer.Option(min=1, help="Samples in a training step.")]
Rate = Annotated[float, typer.Option("--lr", help="Learning rate.")]
Out = Annotated[Path | None, typer.Option(help="Where to write; by default ./pluribus_runs/<command>.")]
Seed = Annotated[int, typer.Option(min=0, help="Of initial weights and training.")]
BudgetText = Annotated[
    str, typer.Option("--budget", help="What it may cost: multiply_adds<=1.5x,parameters<=2M")
]
Judge = Annotated[str | None, typer.Option("--metric", help="What to judge by: nll, accuracy, ece, rmse…")]
Run = Annotated[Path, typer.Argument(help="The folder that `pluribus train` wrote.")]

RUN_FILE = "run.json"


@app.command()
def compare(
    methods: Methods = "all",
    task: TaskName = "digits",
    model: Model = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 3,
    epochs: Epochs = 30,
    batch: Batch = 64,
    rate: Rate = 3e-3,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with one thread.")] = 2,
    shifted: Annotated[bool, typer.Option(help="Measure on shifted data too, which takes longest.")] = True,
    keep: Annotated[str, typer.Option(help="Weights to keep: best on validation data, or last.")] = "best",
    data_dir: DataDir = None,
    option: Options = None,
    budget: BudgetText = "",
    metric: Judge = None,
    out: Out = None,
) -> None:
    """Trains and measures methods on a task, and says which is best. Run again, it goes on."""
    chosen, data = parse_methods(methods), resolve_task(task, data_dir, option)
    limits = parse_budget(budget)
    check_metric(metric)
    name = model or default_model(data)
    folder = out or Path("pluribus_runs/compare")
    training = Training(epochs=epochs, batch=batch, lr=rate, keep=keep)
    records = run_comparison(
        Build(name, data),
        data,
        chosen,
        seeds=seeds,
        training=training,
        out=folder,
        network=name,
        workers=workers,
        shifted=shifted,
    )
    print_groups(group_records(records))
    keys = {one.key for one in records}
    measured = [one for one in record.read([folder], outcomes=True) if one.key in keys]
    page = write_page(folder, group_records(measured), limits, metric)
    console.print(f"records: {folder / record.FILE}\nreport:  {page}", highlight=False)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders with records, of compare or evaluate.")],
    budget: BudgetText = "",
    metric: Judge = None,
    figures: Annotated[bool, typer.Option("--figures", help="Save PNG and SVG files too.")] = False,
    out: Out = None,
) -> None:
    """Makes one page of all records of some runs, and says what to take within a budget."""
    limits = parse_budget(budget)
    groups = group_records(record.read(runs, outcomes=True))
    folder = out or (runs[0] if runs[0].is_dir() else runs[0].parent)
    page = write_page(folder, groups, limits, metric)
    print_groups(groups)
    console.print(f"report:  {page}", highlight=False)
    if figures:
        for path in write_figures(folder / "figures", groups):
            console.print(f"figure:  {path}", highlight=False)


@app.command()
def train(
    method: Annotated[
        str, typer.Option(help="A method: masksembles, deep_ensembles(members=5)")
    ] = "deep_ensembles",
    task: TaskName = "digits",
    model: Model = None,
    epochs: Epochs = 30,
    batch: Batch = 64,
    rate: Rate = 3e-3,
    seed: Seed = 0,
    accelerator: Annotated[str, typer.Option(help="auto, cpu, cuda, mps")] = "auto",
    devices: Annotated[int, typer.Option(min=1, help="How many devices or processes.")] = 1,
    precision: Annotated[str, typer.Option(help="32-true, bf16-mixed, 16-mixed, 64-true")] = "32-true",
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard logs too.")] = False,
    data_dir: DataDir = None,
    option: Options = None,
    out: Out = None,
) -> None:
    """Trains one ensemble. The same line run again goes on where it stopped."""
    (chosen,), data = parse_methods(method), resolve_task(task, data_dir, option)
    name, folder = model or default_model(data), out or Path("pluribus_runs/train")
    training = Training(epochs=epochs, batch=batch, lr=rate, seed=seed)
    with seeded(seed):
        network = Build(name, data)()
    ensemble = convert(network, chosen, data.likelihood, example=data.train.x[:2], seed=seed)
    fabric = make_fabric(accelerator, devices, precision)
    history = run_training(ensemble, data, training, out=folder, fabric=fabric, tensorboard=tensorboard)
    ensemble.save(folder / "ensemble")
    line = {"task": task, "options": option or [], "model": name, "training": training.to_dict()}
    (folder / RUN_FILE).write_text(json.dumps(line, indent=2) + "\n", encoding="utf-8")
    console.print(f"{len(history)} epochs; the ensemble is in {folder / 'ensemble'}", highlight=False)


@app.command()
def evaluate(run: Run, data_dir: DataDir = None, out: Out = None) -> None:
    """Measures a trained ensemble on its task."""
    ensemble, data = load_run(run, data_dir)
    line, folder = read_run(run), out or Path("pluribus_runs/evaluate")
    network = Build(line["model"], data)()
    single = convert(network, Single(), data.likelihood, example=data.train.x[:2]).to(ensemble.device)
    named = {"network": line["model"], "training": line.get("training")}
    measured = run_evaluation(ensemble, data, single=single, **named)
    record.append(folder, measured)
    for section in (measured.metrics, measured.posthoc, measured.cost):
        for name, value in section.items():
            console.print(f"{name:40} {value:.6g}", highlight=False)
    for kind, found in measured.ood.items():
        for name, value in found.items():
            console.print(f"{kind + ' ' + name:40} {value:.6g}", highlight=False)
    console.print(f"record: {folder / record.FILE}", highlight=False)


@app.command()
def predict(
    run: Run,
    inputs: Annotated[
        Path, typer.Argument(help="Raw inputs: a .npy or .npz file (x), or a CSV of features.")
    ],
    data_dir: DataDir = None,
    out: Out = None,
) -> None:
    """Writes predictions with their uncertainty as CSV, one row for each input."""
    ensemble, data = load_run(run, data_dir)
    prediction = data.in_units(ensemble.predict(data.prepare(read_inputs(inputs)), chunk=512))
    table, path = prediction.table(), out or Path("pluribus_runs/predict/predictions.csv")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    console.print(f"{len(prediction)} predictions in {path}", highlight=False)


@app.command()
def methods() -> None:
    """Lists the methods and their settings."""
    for name, method in Method.known().items():
        settings = ", ".join(f"{field.name}={field.default!r}" for field in fields(method))
        console.print(f"[bold]{name}[/bold]({settings})", highlight=False)
        console.print(f"    {(method.__doc__ or '').splitlines()[0]}", highlight=False, markup=False)


def print_groups(groups: list[Group]) -> None:
    """A table for each network and task."""
    for group in groups:
        print_table(make_table(group), group.title)


def parse_methods(text: str) -> list[Method]:
    """`single, deep_ensembles(members=5)` as values; unknown names get the nearest one."""
    known = Method.known()
    if text.strip() == "all":
        ordered = sorted(known.values(), key=lambda m: (m.kind() != "single", m.kind()))
        return [_with_few_draws(method()) for method in ordered]
    found: list[Method] = []
    for call in split_outside_brackets(text):
        name, _, settings = (part.strip() for part in call.removesuffix(")").partition("("))
        if name not in known:
            raise SettingError(
                f"methods are {', '.join(sorted(known))}, however: {name!r}." + nearest(name, known)
            )
        values = dict(parse_option(setting) for setting in split_outside_brackets(settings))
        known[name].check_names(values)
        found.append(known[name](**values))
    return found


def _with_few_draws(method: Method) -> Method:
    """A comparison of all methods is a first look, most of whose time many draws would take."""
    draws = getattr(method, "draws", 0)
    return replace(method, draws=MOST_DRAWS) if draws > MOST_DRAWS else method  # type: ignore[call-arg]


def split_outside_brackets(text: str) -> list[str]:
    """The parts between commas that are in no brackets, without those that are empty."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def parse_option(text: str) -> tuple[str, Any]:
    """`name=value`; values that are no Python literal are words, but for `inf`, which is a number."""
    name, equals, value = text.partition("=")
    if not equals:
        raise SettingError(f"settings are written name=value, however: {text!r}.")
    if value.strip() == INFINITE:
        return name.strip(), math.inf
    try:
        return name.strip(), ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        return name.strip(), value.strip()


def resolve(reference: str) -> Callable[..., Any]:
    """What `package.module:function` names; modules of the present folder are found too."""
    module, _, name = reference.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise SettingError(
            f"{reference} must name a function as package.module:function, however: {error}."
        ) from error
    if not callable(found):
        raise SettingError(f"{reference} must name a function, however: it is a {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def resolve_task(name: str, data_dir: Path | None, options: list[str] | None) -> Task:
    """The task that a user named."""
    values = dict(map(parse_option, options or []))
    if ":" in name:
        task = resolve(name)(**values)
        if not isinstance(task, Task):
            raise SettingError(f"{name} must make a Task, however: it made a {type(task).__name__}.")
        return task
    if name == "digits":
        values = {"train": 300, **values}  # few enough for methods to be told apart
    return load_task(name, data_dir, **values)


def default_model(task: Task) -> str:
    """A small network that takes the task's inputs."""
    return "cnn" if len(task.input_shape) == 3 else "mlp"


class Build:
    """Builds the network that a user named for a task; can be sent to other processes."""

    def __init__(self, name: str, task: Task) -> None:
        self.name, shape = name, task.input_shape
        self.known = {
            "task": task,
            "classes": task.outputs,
            "outputs": task.outputs,
            "in_channels": shape[0],
            "image_size": shape[-1],
            "inputs": math.prod(shape),
        }
        self()  # a network that cannot be built is an error before any training

    def __call__(self) -> nn.Module:
        if ":" not in self.name and self.name not in BACKBONES:
            raise SettingError(
                f"models are {', '.join(BACKBONES)} or package.module:function, however: {self.name!r}."
                + nearest(self.name, BACKBONES)
            )
        function = BACKBONES[self.name] if self.name in BACKBONES else resolve(self.name)
        parameters = inspect.signature(function).parameters
        module = function(**{name: value for name, value in self.known.items() if name in parameters})
        if not isinstance(module, nn.Module):
            raise SettingError(f"{self.name} must build a torch.nn.Module, however: {type(module).__name__}.")
        return module


def read_run(run: Path) -> dict[str, Any]:
    """What `pluribus train` wrote of a run."""
    if not (run / RUN_FILE).is_file():
        raise SettingError(f"{run} must be a folder of `pluribus train`, however: it has no {RUN_FILE}.")
    line: dict[str, Any] = json.loads((run / RUN_FILE).read_text(encoding="utf-8"))
    return line


def load_run(run: Path, data_dir: Path | None) -> tuple[Ensemble, Task]:
    """The ensemble that `pluribus train` wrote, and its task."""
    line = read_run(run)
    task = resolve_task(line["task"], data_dir, line["options"])
    ensemble = load(run / "ensemble", Build(line["model"], task)(), example=task.train.x[:2])
    return ensemble.eval(), task


def read_inputs(path: Path) -> Tensor:
    """Raw inputs of a file, `[count, ...]`."""
    if not path.is_file():
        raise InputError(f"{path} must be a file of inputs, however: there is none.")
    try:
        if path.suffix == ".csv":
            return torch.from_numpy(np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32, ndmin=2))
        loaded = np.load(path)
        return torch.from_numpy(loaded["x"] if path.suffix == ".npz" else loaded)
    except (ValueError, KeyError, OSError) as error:
        raise InputError(
            f"{path} must hold numbers (.npy, .npz with x, or .csv), however: {error}."
        ) from error


def main() -> None:
    """The command `pluribus`: errors of ours are one line, without a traceback."""
    try:
        app(standalone_mode=True)
    except PluribusError as error:
        Console(stderr=True).print(f"error: {error}", style="red", highlight=False, markup=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
