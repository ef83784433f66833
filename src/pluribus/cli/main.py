"""The command line: compare, report, train, evaluate, predict, methods."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from textwrap import fill
from typing import Annotated

try:
    import typer
    from rich.console import Console
# The command is installed with the library, but its dependencies only with the extra.
except ImportError as error:
    raise SystemExit("the command line needs typer and rich: install pluribus with the extra cli") from error

from pluribus.backbones import BACKBONES
from pluribus.cli.parsing import (
    MOST_DRAWS,
    Build,
    default_model,
    meaning,
    parse_method,
    parse_methods,
    resolve_task,
)
from pluribus.cli.run_file import load_run, write_run
from pluribus.cli.spreadsheet import write_table
from pluribus.cli.termination import exit_code, sigterm_interrupts
from pluribus.cli.verification import verify as verify_folder
from pluribus.comparison import record
from pluribus.comparison.comparison import compare as run_comparison
from pluribus.comparison.evaluation import evaluate as run_evaluation
from pluribus.conversion import convert
from pluribus.data import TASKS
from pluribus.data.raw_inputs import far_outside, read_inputs
from pluribus.data.targets import classes_in
from pluribus.data.task import Task
from pluribus.errors import PluribusError, SettingError
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.method import Method
from pluribus.method_text import parse_options
from pluribus.methods.single import Single
from pluribus.report.budget import Limit, parse_budget
from pluribus.report.groups import Group, group_records
from pluribus.report.page import check_figures, write_figures, write_page
from pluribus.report.recommendation import check_metric, qualities, recommend
from pluribus.report.tables import make_table
from pluribus.report.terminal import print_table
from pluribus.training import Training
from pluribus.training import train as run_training
from pluribus.training.loop import make_fabric
from pluribus.version import VERSION

# Plain help: the boxes of rich cut words that are longer than their column, such as examples of settings.
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 110},
)
console = Console()
stderr = Console(stderr=True)

Methods = Annotated[
    str,
    typer.Option(
        help="Names, with settings if needed: single,deep_ensembles(members=5); or all, with at most "
        f"{MOST_DRAWS} draws each."
    ),
]
TaskName = Annotated[
    str, typer.Option(help=f"{', '.join(TASKS)}, or package.module:function that returns a task.")
]
Model = Annotated[
    str | None,
    typer.Option(help=f"{', '.join(BACKBONES)}, or package.module:function that returns the network."),
]
DataDir = Annotated[Path | None, typer.Option(help="The folder of the data sets; by default $PLURIBUS_DATA.")]
Options = Annotated[list[str] | None, typer.Option("--option", help="An option of the task, name=value.")]
Epochs = Annotated[int, typer.Option(min=1, help="Passes over the training set.")]
Batch = Annotated[int, typer.Option(min=1, help="Samples in a training step.")]
Rate = Annotated[float, typer.Option("--lr", help="Learning rate.")]
Out = Annotated[
    Path | None, typer.Option(help="The folder to write to; by default ./pluribus_runs/<command>.")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of initial weights and training.")]
BudgetText = Annotated[
    str, typer.Option("--budget", help="Limits of cost: multiply_adds<=1.5x,parameters<=2M")
]
Judge = Annotated[
    str | None, typer.Option("--metric", help="The metric to judge by: nll, accuracy, ece, rmse…")
]
Run = Annotated[Path, typer.Argument(help="The folder that `pluribus train` wrote.")]
OwnTask = Annotated[
    str | None,
    typer.Option("--task", help="Your own task again, if the run has one."),
]
OwnModel = Annotated[
    str | None,
    typer.Option("--model", help="Your own network again, if the run has one."),
]


def print_version(asked: bool) -> None:
    """Print the version and exit, if the option is given."""
    if asked:
        console.print(f"pluribus {VERSION}", highlight=False)
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
]


@contextmanager
def resumable() -> Iterator[None]:
    """Exit with one line if Ctrl-C or SIGTERM stops a command that can continue later."""
    try:
        with sigterm_interrupts():
            yield
    except KeyboardInterrupt as interrupt:
        say("stopped: run the same line again to continue")
        raise typer.Exit(exit_code(interrupt)) from None


@app.callback()
def start(version: Version = False) -> None:
    """Turn networks into ensembles, measure them, and recommend one."""


@app.command()
@resumable()
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
    """Train and measure methods on a task, and recommend one. Run again, it continues."""
    # Everything that can be wrong with the arguments is checked before the first hour of training.
    chosen = parse_methods(methods)
    data = resolve_task(task, data_dir, option)
    limits = parse_budget(budget)
    check_metric(metric)
    name = model or default_model(data)
    training = Training(epochs=epochs, batch=batch, lr=rate, keep=keep)
    build = Build(name, data)
    folder = writable(out or Path("pluribus_runs/compare"))
    hint(task, data, option)
    records = run_comparison(
        build,
        data,
        chosen,
        seeds=seeds,
        training=training,
        out=folder,
        network=name,
        workers=workers,
        shifted=shifted,
    )
    # Read again with the outcomes, which the figures of the page need.
    measured = {one.key: one for one in record.read([folder], outcomes=True)}
    warn_of_damage([folder])
    groups = group_records([measured[one.key] for one in records])
    print_groups(groups, limits, metric)
    console.print(f"records: {folder / record.FILE}", highlight=False)
    failed = [one for one in records if one.error]
    if len(failed) < len(records):
        console.print(f"report:  {write_page(folder, groups, limits, metric)}", highlight=False)
    if failed:
        say(f"error: {len(failed)} of {counted(len(records), 'run')} failed", "red")
        raise typer.Exit(1)


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders with records, of compare or evaluate.")],
    budget: BudgetText = "",
    metric: Judge = None,
    figures: Annotated[bool, typer.Option("--figures", help="Save PNG and SVG files too.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write to; by default that of the first records.")
    ] = None,
) -> None:
    """Write one page about all records of some runs, and recommend a method within a budget."""
    limits = parse_budget(budget)
    if figures:
        check_figures()
    groups = group_records(record.read(runs, outcomes=True))
    warn_of_damage(runs)
    beside = runs[0] if runs[0].is_dir() else runs[0].parent
    folder = writable(out or beside)
    page = write_page(folder, groups, limits, metric)
    print_groups(groups, limits, metric)
    console.print(f"report:  {page}", highlight=False)
    if figures:
        for path in write_figures(folder / "figures", groups):
            console.print(f"figure:  {path}", highlight=False)


@app.command()
@resumable()
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
    """Train one ensemble. The same line run again continues where it stopped."""
    chosen = parse_method(method)
    data = resolve_task(task, data_dir, option)
    name = model or default_model(data)
    training = Training(epochs=epochs, batch=batch, lr=rate, seed=seed)
    with seeded(seed):
        network = Build(name, data)()
    ensemble = convert(network, chosen, data.likelihood, example=data.train.x[:2], seed=seed)
    fabric = make_fabric(accelerator, devices, precision)
    folder = writable(out or Path("pluribus_runs/train"))
    hint(task, data, option)
    history = run_training(ensemble, data, training, out=folder, fabric=fabric, tensorboard=tensorboard)
    ensemble.save(folder / "ensemble")
    write_run(folder, task, option or [], name, training, data, ensemble)
    console.print(
        f"{counted(len(history), 'epoch')}; the ensemble is in {folder / 'ensemble'}", highlight=False
    )


@app.command()
def evaluate(
    run: Run, task: OwnTask = None, model: OwnModel = None, data_dir: DataDir = None, out: Out = None
) -> None:
    """Measure a trained ensemble on its task."""
    found = load_run(run, data_dir, task, model)
    folder = writable(out or Path("pluribus_runs/evaluate"))
    ensemble, data = found.ensemble, found.task
    single = convert(found.build(), Single(), data.likelihood, example=data.train.x[:2])
    measured = run_evaluation(
        ensemble,
        data,
        single=single.to(ensemble.device),
        network=found.build.name,
        training=found.training,
    )
    record.append(folder, measured)
    for section in (measured.metrics, measured.posthoc, measured.cost):
        print_numbers("", section)
    for kind, scores in measured.ood.items():
        print_numbers(f"{kind} ", scores)
    console.print(f"record: {folder / record.FILE}", highlight=False)


@app.command()
def predict(
    run: Run,
    inputs: Annotated[
        Path,
        typer.Argument(
            help="Raw inputs, before scaling, as in the source of the task (images as bytes or from 0 to "
            "1): a .npy or .npz file (x), or a CSV file whose first line names the features."
        ),
    ],
    task: OwnTask = None,
    model: OwnModel = None,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(help="The CSV file to write.")] = Path(
        "pluribus_runs/predict/predictions.csv"
    ),
) -> None:
    """Write predictions with their uncertainty as CSV, one row for each input."""
    found = load_run(run, data_dir, task, model)
    data = found.task
    # A CSV file to predict for has most likely the delimiter of the one that was trained on.
    delimiter = parse_options(found.options).get("delimiter", ",")
    raw = read_inputs(inputs, data, delimiter)
    writable(out.parent)
    far = far_outside(raw, data)
    if far:
        say(f"warning: {far}")
    prediction = found.ensemble.predict(data.prepare(raw), chunk=512)
    write_table(out, data.table(prediction))
    console.print(f"{counted(len(raw), 'prediction')} in {out}", highlight=False)


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="A folder of train, compare or evaluate, or a saved ensemble.")],
) -> None:
    """Check the files of a folder without running any of your code."""
    found = verify_folder(run)
    for one in found:
        line = f"bad  {one.path}: {one.problem}" if one.problem else f"ok   {one.path}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    bad = [one for one in found if one.problem]
    if bad:
        say(f"error: {len(bad)} of {counted(len(found), 'file')} damaged", "red")
        raise typer.Exit(1)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="A method whose settings to explain.")] = None,
) -> None:
    """List the methods and their settings, or explain the settings of one method."""
    if name is not None:
        for line in meaning(name):
            # Wrapped lines of a setting are indented, so that its name stands out.
            indent = " " * 8 if line.startswith(" ") else ""
            console.print(fill(line, console.width, subsequent_indent=indent), highlight=False, markup=False)
        return
    for known, method in Method.known().items():
        settings = ", ".join(f"{field.name}={field.default!r}" for field in fields(method))
        summary = (method.__doc__ or "").splitlines()[0]
        console.print(f"[bold]{known}[/bold]({settings})", highlight=False)
        console.print(f"    {summary}", highlight=False, markup=False)


def print_groups(groups: list[Group], limits: tuple[Limit, ...], metric: str | None) -> None:
    """Print a table for each network and task, and below it the recommendation."""
    for group in groups:
        print_table(make_table(group), group.title, metric)
        # One page may mix classification and regression, which have different metrics.
        judge = metric if metric in qualities(group) else None
        found = recommend(group, limits, judge)
        console.print(f"{found.title}. {found.sentences[0]}", highlight=False, markup=False)


def print_numbers(prefix: str, numbers: Mapping[str, float]) -> None:
    """Print one line for each number, its name first."""
    for name, value in numbers.items():
        console.print(f"{prefix + name:40} {value:.6g}", highlight=False)


def warn_of_damage(runs: list[Path]) -> None:
    """Print a warning for each line of records that cannot be read; each costs one run."""
    for sentence in record.damaged_lines(runs):
        say(f"warning: {sentence}")


def say(line: str, style: str = "yellow") -> None:
    """Print a line on stderr, so that stdout holds results alone."""
    stderr.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def counted(count: int, word: str) -> str:
    """Return a count with its word: `1 epoch`, `2 epochs`."""
    plural = "" if count == 1 else "s"
    return f"{count} {word}{plural}"


def writable(folder: Path) -> Path:
    """Create a folder if it does not exist, and return it; raise `SettingError` if it is not writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"--out must be a folder that exists or can be made, got {folder}: {error.strerror}. "
            "Choose another."
        ) from error
    if not os.access(folder, os.W_OK):
        raise SettingError(f"--out must be a writable folder, got {folder}, which is not. Choose another.")
    return folder


def hint(name: str, task: Task, options: list[str] | None) -> None:
    """Print a hint if the numbers to predict of a CSV file look like classes."""
    given = parse_options(options or [])
    if name != "csv" or "likelihood" in given:
        return
    classes = classes_in(task.target_scaling.invert(task.train.y))
    if classes:
        say(
            f"hint: {given['target']} is predicted as a number, but it holds 0 to {classes - 1} alone. "
            "If these are classes, add --option likelihood=categorical"
        )


def main() -> None:
    """Run the command `pluribus`. Errors of Pluribus are one line, without a traceback."""
    try:
        app(standalone_mode=True)
    except PluribusError as error:
        say(f"error: {error}", "red")
        sys.exit(2)
    # A full disk or a file that vanished can raise anywhere, and a traceback would not help the user.
    except OSError as error:
        say(f"error: {error.filename or 'a file'}: {error.strerror or error}", "red")
        sys.exit(2)
