"""The commands behind the command line, with all that they need imported."""

import os
from dataclasses import fields
from pathlib import Path
from textwrap import fill
from typing import Any

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
from pluribus.cli.run_file import load_run, write_run
from pluribus.cli.spreadsheet import write_table
from pluribus.cli.verification import verify as verify_folder
from pluribus.comparison import record
from pluribus.comparison.comparison import compare as run_comparison
from pluribus.comparison.diagnosis import doctor as examine
from pluribus.comparison.evaluation import evaluate as run_evaluation
from pluribus.conversion import convert
from pluribus.data.raw_inputs import far_outside, read_inputs
from pluribus.data.targets import classes_in
from pluribus.data.task import Task
from pluribus.errors import SettingError
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
from pluribus.training import Training, checkpoint
from pluribus.training import train as run_training
from pluribus.training.loop import make_fabric

# Plain help: the boxes of rich cut words that are longer than their column, such as examples of settings.


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
    out: Path | None,
) -> None:
    """Trains and measures methods on a task, and says which is best. Run again, it goes on."""
    chosen, data = parse_methods(methods), resolve_task(task, data_dir, option)
    limits = parse_budget(budget)
    check_metric(metric)
    name = model or default_model(data)
    training, build = Training(epochs, batch, lr=rate, keep=keep, steps=steps), Build(name, data)
    folder = writable(out or Path("pluribus_runs/compare"))
    hint(task, data, option)
    how: dict[str, Any] = {"seeds": seeds, "training": training, "workers": workers, "shifted": shifted}
    how["recipes"] = recipes
    records = run_comparison(build, data, chosen, out=folder, network=name, **how)
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


def report(*, runs: list[Path], budget: str, metric: str | None, figures: bool, out: Path | None) -> None:
    """Makes one page of all records of some runs, and says what to take within a budget."""
    limits = parse_budget(budget)
    if figures:
        check_figures()
    groups = group_records(record.read(runs, outcomes=True))
    warn_of_damage(runs)
    folder = writable(out or (runs[0] if runs[0].is_dir() else runs[0].parent))
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
    accelerator: str,
    devices: int,
    precision: str,
    tensorboard: bool,
    data_dir: Path | None,
    option: list[str] | None,
    out: Path | None,
) -> None:
    """Trains one ensemble. The same line run again goes on where it stopped."""
    chosen, data = parse_method(method), resolve_task(task, data_dir, option)
    name = model or default_model(data)
    training = Training(epochs, batch, lr=rate, seed=seed, steps=steps)
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
    *, run: Path, task: str | None, model: str | None, data_dir: Path | None, out: Path | None
) -> None:
    """Measures a trained ensemble on its task."""
    found, folder = load_run(run, data_dir, task, model), writable(out or Path("pluribus_runs/evaluate"))
    ensemble, data, name = found.ensemble, found.task, found.build.name
    single = convert(found.build(), Single(), data.likelihood, example=data.train.x[:2]).to(ensemble.device)
    measured = run_evaluation(ensemble, data, single=single, network=name, training=found.training)
    record.append(folder, measured)
    for section in (measured.metrics, measured.posthoc, measured.cost):
        for name, value in section.items():
            console.print(f"{name:40} {value:.6g}", highlight=False)
    for kind, scores in measured.ood.items():
        for name, value in scores.items():
            console.print(f"{kind + ' ' + name:40} {value:.6g}", highlight=False)
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
    *, run: Path, inputs: Path, task: str | None, model: str | None, data_dir: Path | None, out: Path
) -> None:
    """Writes predictions with their uncertainty as CSV, one row for each input."""
    found = load_run(run, data_dir, task, model)
    data, given = found.task, parse_options(found.options)
    raw = read_inputs(inputs, data, given.get("delimiter", ","))
    writable(out.parent)
    if far := far_outside(raw, data):
        say(f"warning: {far}")
    write_table(out, data.table(found.ensemble.predict(data.prepare(raw), chunk=512)))
    console.print(f"{counted(len(raw), 'prediction')} in {out}", highlight=False)


def verify(*, run: Path) -> None:
    """Checks the files of a folder, without running anything of yours."""
    found = verify_folder(run)
    for one in found:
        line = f"bad  {one.path}: {one.problem}" if one.problem else f"ok   {one.path}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    bad = sum(1 for one in found if one.problem)
    if bad:
        say(f"error: {bad} of {counted(len(found), 'file')} damaged", "red")
        raise typer.Exit(1)


def methods(*, name: str | None) -> None:
    """Lists the methods and their settings, or says what those of one method mean."""
    if name is not None:
        for line in meaning(name):
            indent = " " * 8 if line.startswith(" ") else ""
            console.print(fill(line, console.width, subsequent_indent=indent), highlight=False, markup=False)
        return
    for name, method in Method.known().items():
        settings = ", ".join(f"{field.name}={field.default!r}" for field in fields(method))
        console.print(f"[bold]{name}[/bold]({settings})", highlight=False)
        console.print(f"    {(method.__doc__ or '').splitlines()[0]}", highlight=False, markup=False)


def print_groups(groups: list[Group], limits: tuple[Limit, ...], metric: str | None) -> None:
    """A table for each network and task, and below it what to take."""
    for group in groups:
        print_table(make_table(group), group.title, metric)
        found = recommend(group, limits, metric if metric in qualities(group) else None)
        console.print(f"{found.title}. {found.sentences[0]}", highlight=False, markup=False)


def warn_of_damage(runs: list[Path]) -> None:
    """Name the lines of records that cannot be read; each costs one run."""
    for sentence in record.damaged_lines(runs):
        say(f"warning: {sentence}")


def writable(folder: Path) -> Path:
    """The folder, made if need be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"--out must lie in a folder that is there or can be made, however: {folder}: {error.strerror}. "
            "Choose another."
        ) from error
    if not os.access(folder, os.W_OK):
        raise SettingError(f"--out must be open to be written to, however: {folder} is not. Choose another.")
    return folder


def hint(name: str, task: Task, options: list[str] | None) -> None:
    """Tells of a CSV file whose numbers to predict look like classes."""
    given = parse_options(options or [])
    classes = classes_in(task.target_scaling.invert(task.train.y)) if name == "csv" else 0
    if classes and "likelihood" not in given:
        say(
            f"hint: {given['target']} is predicted as a number, however: it holds 0 to {classes - 1} alone. "
            "If these are classes, add --option likelihood=categorical"
        )
