"""The commands of the command line, in a file of their own because they import PyTorch."""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from textwrap import fill

import typer

from pluribus.cli.parsing import (
    Build,
    default_model,
    meaning,
    parse_method,
    parse_methods,
    resolve_task,
)
from pluribus.cli.printing import console, counted, say
from pluribus.cli.run_file import load_for_prediction, load_run, write_run
from pluribus.cli.spreadsheet import write_table
from pluribus.cli.verification import verify as verify_folder
from pluribus.comparison import record
from pluribus.comparison.comparison import compare as run_comparison
from pluribus.comparison.decisions import check_costs, with_costs
from pluribus.comparison.diagnosis import doctor as examine
from pluribus.comparison.evaluation import evaluate as run_evaluation
from pluribus.conversion import convert
from pluribus.data.raw_inputs import far_outside, read_inputs
from pluribus.data.targets import classes_in
from pluribus.data.task import Task
from pluribus.errors import SettingError
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.method import ON_TRAINED, Method
from pluribus.method_text import parse_options
from pluribus.methods.single import Single
from pluribus.metrics.costs import parse_costs
from pluribus.report.budget import Limit, parse_budget
from pluribus.report.figure_files import check_figures, write_figures
from pluribus.report.groups import Group, group_records
from pluribus.report.page import write_page
from pluribus.report.recommendation import check_metric, qualities, recommend
from pluribus.report.tables import make_table
from pluribus.report.terminal import print_table
from pluribus.training import Training, checkpoint
from pluribus.training import train as run_training
from pluribus.training.loop import make_fabric


def compare(
    *,
    methods: str,
    task: str,
    model: str | None,
    seeds: int,
    epochs: int | None,
    steps: int | None,
    batch: int,
    rate: float,
    workers: int,
    shifted: bool,
    keep: str,
    recipes: bool,
    data_dir: Path | None,
    option: list[str] | None,
    budget: str,
    metric: str | None,
    costs: str,
    out: Path | None,
) -> None:
    """Train and measure methods on a task, and recommend one. Run again, it continues."""
    # Everything that can be wrong with the arguments is checked before the first hour of training.
    chosen = parse_methods(methods)
    data = resolve_task(task, data_dir, option)
    limits = parse_budget(budget)
    check_metric(metric)
    prices = parse_costs(costs)
    check_costs(prices, data)
    name = model or default_model(data)
    training = Training(epochs=epochs, batch=batch, lr=rate, keep=keep, steps=steps)
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
        recipes=recipes,
        costs=prices,
    )
    # Read again with the outcomes, which the figures of the page need.
    measured = {one.key: one for one in record.read([folder], outcomes=True)}
    warn_of_damage([folder])
    # Runs that were finished before may have been measured with other costs.
    groups = group_records([with_costs(measured[one.key], prices) for one in records])
    print_groups(groups, limits, metric)
    console.print(f"records: {folder / record.FILE}", highlight=False)
    failed = [one for one in records if one.error]
    if len(failed) < len(records):
        console.print(f"report:  {write_page(folder, groups, limits, metric)}", highlight=False)
    if failed:
        say(f"error: {len(failed)} of {counted(len(records), 'run')} failed", "red")
        raise typer.Exit(1)


def report(
    *, runs: list[Path], budget: str, metric: str | None, costs: str, figures: bool, out: Path | None
) -> None:
    """Write one page about all records of some runs, and recommend a method within a budget."""
    limits, prices = parse_budget(budget), parse_costs(costs)
    if figures:
        check_figures()
    groups = group_records([with_costs(one, prices) for one in record.read(runs, outcomes=True)])
    warn_of_damage(runs)
    beside = runs[0] if runs[0].is_dir() else runs[0].parent
    folder = writable(out or beside)
    page = write_page(folder, groups, limits, metric)
    print_groups(groups, limits, metric)
    console.print(f"report:  {page}", highlight=False)
    if figures:
        for path in write_figures(folder / "figures", groups):
            console.print(f"figure:  {path}", highlight=False)


def train(
    *,
    method: str,
    task: str,
    model: str | None,
    epochs: int | None,
    steps: int | None,
    batch: int,
    rate: float,
    seed: int,
    recipes: bool,
    accelerator: str,
    devices: int,
    precision: str,
    tensorboard: bool,
    data_dir: Path | None,
    option: list[str] | None,
    out: Path | None,
) -> None:
    """Train one ensemble. The same line run again continues where it stopped."""
    chosen = parse_method(method)
    data = resolve_task(task, data_dir, option)
    name = model or default_model(data)
    training = Training(epochs, batch, lr=rate, seed=seed, steps=steps)
    if recipes:
        training = training.following(chosen.recipe(), len(data.train))
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


def evaluate(
    *,
    run: Path,
    task: str | None,
    model: str | None,
    data_dir: Path | None,
    costs: str,
    out: Path | None,
) -> None:
    """Measure a trained ensemble on its task."""
    prices = parse_costs(costs)
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
        costs=prices,
    )
    record.append(folder, measured)
    for section in (measured.metrics, measured.posthoc, measured.decisions, measured.cost):
        print_numbers("", section)
    for kind, scores in measured.ood.items():
        print_numbers(f"{kind} ", scores)
    console.print(f"record: {folder / record.FILE}", highlight=False)


def doctor(*, run: Path, task: str | None, model: str | None, data_dir: Path | None) -> None:
    """Looks for defects of a trained ensemble, and names remedies."""
    found = load_run(run, data_dir, task, model)
    state = run / checkpoint.FILE
    history = checkpoint.read_state(state)["progress"]["history"] if state.is_file() else []
    findings = examine(found.ensemble, found.task, history=history)
    for one in findings:
        console.print(f"{one.code}: {one.message}. {one.remedy}", highlight=False, markup=False)
    if not findings:
        console.print("nothing found", highlight=False)


def predict(
    *,
    run: Path,
    inputs: Path,
    task: str | None,
    model: str | None,
    data_dir: Path | None,
    out: Path,
    most_bytes: int,
) -> None:
    """Write predictions with their uncertainty as CSV, one row for each input; needs no training data."""
    ensemble, signature = load_for_prediction(run, data_dir, task, model)
    raw = read_inputs(inputs, signature, most_bytes)
    writable(out.parent)
    far = far_outside(raw.values, signature)
    if far:
        say(f"warning: {far}")
    prediction = ensemble.predict(signature.prepare(raw.values), chunk=512)
    table = signature.table(prediction)
    # Rows that are unlike the training data are predicted all the same, and marked in a column.
    flagged = sum(map(bool, raw.flags))
    if flagged:
        say(f"warning: {counted(flagged, 'row')} of {len(raw)} unlike training, see the column flag")
        table["flag"] = list(raw.flags)
    write_table(out, table)
    console.print(f"{counted(len(raw), 'prediction')} in {out}", highlight=False)


def verify(*, run: Path) -> None:
    """Check the files of a folder without running any of the user's code."""
    found = verify_folder(run)
    for one in found:
        line = f"bad  {one.path}: {one.problem}" if one.problem else f"ok   {one.path}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    bad = [one for one in found if one.problem]
    if bad:
        say(f"error: {len(bad)} of {counted(len(found), 'file')} damaged", "red")
        raise typer.Exit(1)


def methods(*, name: str | None) -> None:
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
        console.print(
            f"    With its defaults {ON_TRAINED[method().on_trained]}.", highlight=False, markup=False
        )


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
    """Print the assumptions about the data, and a hint if numbers to predict look like classes."""
    if task.columns is not None:
        say(str(task.columns), "none")
    for note in task.notes:
        say(f"note: {note}")
    given = parse_options(options or [])
    if name != "csv" or "likelihood" in given:
        return
    classes = classes_in(task.target_scaling.invert(task.train.y))
    if classes:
        say(
            f"hint: {given['target']} is predicted as a number, but it holds 0 to {classes - 1} alone. "
            "If these are classes, add --option likelihood=categorical"
        )
