"""The commands of the command line, in a file of their own because they import PyTorch."""

import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from textwrap import fill
from typing import Any

import typer

from pluribus.cli.announced_run import announced_run
from pluribus.cli.decision_column import (
    COLUMN,
    costs_in_words,
    counts_in_words,
    decisions,
    names_of_outcomes,
)
from pluribus.cli.parsing import (
    default_model,
    meaning,
    parse_method,
    parse_methods,
    resolve_task,
)
from pluribus.cli.prediction_files import prediction_file
from pluribus.cli.printing import console, counted, say
from pluribus.cli.run_file import load_for_prediction, load_run
from pluribus.cli.task_help import summary, task_options
from pluribus.cli.testbed import score_methods
from pluribus.cli.verification import verify as verify_folder
from pluribus.comparison import record
from pluribus.comparison.comparison import compare as run_comparison
from pluribus.comparison.decisions import check_costs, with_costs
from pluribus.comparison.diagnosis import doctor as examine
from pluribus.comparison.evaluation import evaluate as run_evaluation
from pluribus.comparison.executors import check_executor
from pluribus.comparison.finetuning import finetune as run_finetuning
from pluribus.comparison.finetuning import usual_training, warm_start
from pluribus.comparison.run_folder import write_run
from pluribus.conversion import convert
from pluribus.conversion_record import ON_TRAINED
from pluribus.data import TASKS
from pluribus.data.far_outside import far_outside
from pluribus.data.raw_inputs import RawInputs, input_chunks
from pluribus.data.signature import Signature
from pluribus.data.targets import classes_in
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError
from pluribus.export.exporting import description_path, find_format
from pluribus.likelihood import Gaussian
from pluribus.loading import load_weights
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.method import Method
from pluribus.method_text import parse_options
from pluribus.methods.single import Single
from pluribus.metrics.costs import Costs, parse_costs
from pluribus.prediction import Prediction
from pluribus.report.budget import parse_budget
from pluribus.report.figure_files import check_figures, write_figures
from pluribus.report.groups import group_records
from pluribus.report.judging import check_metric
from pluribus.report.page import write_page
from pluribus.report.presenting import print_groups
from pluribus.report.record_table import print_record
from pluribus.runs.loaded_run import predicted
from pluribus.runs.named_network import Build
from pluribus.testbed.cells import parse_grid
from pluribus.testbed.presets import read_names
from pluribus.testbed.protocol import Protocol
from pluribus.training import Training, checkpoint
from pluribus.training import train as run_training
from pluribus.training.hardware import PLAIN, Hardware
from pluribus.training.progress import SECONDS_BETWEEN_LINES


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
    train_for: str,
    data_dir: Path | None,
    option: list[str] | None,
    budget: str,
    metric: str | None,
    costs: str,
    accelerator: str,
    devices: int,
    precision: str,
    executor: str | None,
    out: Path | None,
) -> None:
    """Train and measure methods on a task, and recommend one. Run again, it continues."""
    # Everything that can be wrong with the arguments is checked before the first hour of training.
    chosen = parse_methods(methods)
    data = resolve_task(task, data_dir, option)
    parse_budget(budget)
    check_metric(metric)
    check_executor(executor)
    prices = parse_costs(costs)
    check_costs(prices, data)
    _say_costs(prices, data)
    hardware = Hardware(accelerator, devices, precision)
    name = model or default_model(data)
    training = Training(epochs=epochs, batch=batch, lr=rate, keep=keep, steps=steps)
    build = Build(name, data)
    folder = writable(out or Path("pluribus_runs/compare"))
    hint(task, data, option)
    if (folder / record.FILE).is_file():
        warn_of_damage([folder])
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
        train_for=train_for,
        costs=prices,
        hardware=hardware,
        budget=budget,
        metric=metric,
        source=(task, option or []),
        executor=executor,
    )
    failed = [one for one in records if one.error]
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
    ensemble = convert(network, chosen, data.likelihood, example=data.train.example_for(network), seed=seed)
    fabric = Hardware(accelerator, devices, precision).fabric()
    folder = writable(out or Path("pluribus_runs/train"))
    if fabric.is_global_zero:
        hint(task, data, option)
    history = run_training(ensemble, data, training, out=folder, fabric=fabric, tensorboard=tensorboard)
    # Of several processes, the first one writes.
    if not fabric.is_global_zero:
        return
    ensemble.save(folder / "ensemble")
    write_run(folder, task, option or [], name, training, data, ensemble)
    console.print(
        f"{counted(len(history), 'epoch')}; the ensemble is in {folder / 'ensemble'}", highlight=False
    )


def testbed(
    *,
    methods: str,
    grid: str,
    seeds: int,
    noise: str,
    direction: str,
    as_in_paper: bool,
    steps: int,
    accelerator: str,
    devices: int,
    precision: str,
    out: Path | None,
) -> None:
    """Score the uncertainty of methods against an exact posterior. Run again, it continues."""
    # Everything that can be wrong with the arguments is checked before the first hour of training.
    names, cells = read_names(methods), parse_grid(grid)
    hardware = Hardware(accelerator, devices)
    hardware.check_one("the testbed needs")
    protocol = Protocol(
        noise=noise,
        direction=direction,
        as_in_paper=as_in_paper,
        steps=steps,
        device=str(hardware.fabric().device),
        precision=precision,
    )
    score_methods(names, cells, seeds, protocol, writable(out or Path("pluribus_runs/testbed")))


def finetune(
    *,
    checkpoint: Path,
    method: str,
    task: str,
    model: str | None,
    freeze_shared: bool | None,
    epochs: int | None,
    batch: int | None,
    rate: float | None,
    seed: int,
    accelerator: str,
    devices: int,
    precision: str,
    data_dir: Path | None,
    option: list[str] | None,
    out: Path | None,
) -> None:
    """Make a trained network an ensemble: tune it, calibrate it, and compare it with what it was."""
    chosen = warm_start(parse_method(method), freeze_shared)
    data = resolve_task(task, data_dir, option)
    name = model or default_model(data)
    network = load_weights(Build(name, data)(), checkpoint)
    given: dict[str, Any] = {"epochs": epochs, "batch": batch, "lr": rate, "seed": seed}
    changes = {field: value for field, value in given.items() if value is not None}
    training = replace(usual_training(chosen), **changes)
    fabric = Hardware(accelerator, devices, precision).fabric()
    folder = writable(out or Path("pluribus_runs/finetune"))
    hint(task, data, option)
    found = run_finetuning(
        network, chosen, data, training=training, out=folder, seed=seed, fabric=fabric, network=name
    )
    write_run(folder, task, option or [], name, training, data, found.ensemble)
    for one in (found.before, found.after):
        record.append(folder, one)
    console.print(str(found), highlight=False, markup=False)
    console.print(f"the ensemble is in {folder / 'ensemble'}", highlight=False, soft_wrap=True)


def _say_costs(costs: Costs | None, task: Task) -> None:
    """Print what costs mean for the classes of a task: of two, which one must not be missed."""
    if costs is not None:
        names = names_of_outcomes(task.likelihood, task.classes, task.class_names)
        say(costs_in_words(costs, names), "none")


def evaluate(
    *,
    run: Path,
    task: str | None,
    model: str | None,
    data_dir: Path | None,
    costs: str,
    accelerator: str,
    devices: int,
    precision: str,
    out: Path | None,
) -> None:
    """Measure a trained ensemble on its task."""
    prices = parse_costs(costs)
    found = load_run(announced_run(run), data_dir, task, model)
    folder = writable(out or Path("pluribus_runs/evaluate"))
    ensemble, data = found.ensemble, found.task
    check_costs(prices, data)
    _say_costs(prices, data)
    network = found.build()
    single = convert(network, Single(), data.likelihood, example=data.train.example_for(network))
    with Hardware(accelerator, devices, precision).predicting(ensemble):
        measured = run_evaluation(
            ensemble,
            data,
            single=single.to(ensemble.device),
            network=found.build.name,
            training=found.training,
            costs=prices,
        )
    record.append(folder, measured)
    print_record(measured)
    console.print(f"record: {folder / record.FILE}", highlight=False)


def doctor(
    *,
    run: Path,
    task: str | None,
    model: str | None,
    data_dir: Path | None,
    accelerator: str,
    devices: int,
    precision: str,
) -> None:
    """Look for defects of a trained ensemble, and name remedies."""
    folder = announced_run(run)
    found = load_run(folder, data_dir, task, model)
    state = folder / checkpoint.FILE
    history = checkpoint.read_state(state)["progress"]["history"] if state.is_file() else []
    with Hardware(accelerator, devices, precision).predicting(found.ensemble):
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
    costs: str,
    most_bytes: int,
    accelerator: str,
    devices: int,
    precision: str,
) -> None:
    """Write predictions with their uncertainty, one row for each input; needs no training data."""
    prices = parse_costs(costs)
    ensemble, signature = load_for_prediction(announced_run(run), data_dir, task, model)
    say(_calibrated_by(ensemble), "none")
    decided, names = Counter[str](), list[str]()
    if prices is not None:
        names = names_of_outcomes(ensemble.likelihood, signature.classes, signature.class_names)
        say(costs_in_words(prices, names), "none")
    writable(out.parent)
    count = flagged = strange = 0
    told = time.monotonic()
    with prediction_file(out) as file, Hardware(accelerator, devices, precision).predicting(ensemble):
        for raw in input_chunks(inputs, signature, most_bytes=most_bytes):
            prediction = predicted(ensemble, signature, raw)
            rows = predicted_rows(prediction, signature, raw, out.suffix == ".npz")
            if prices is not None:
                rows[COLUMN] = decisions(prediction, prices, names)
                decided.update(rows[COLUMN])
            file.write(rows)
            # One warning is enough: all chunks come from one source.
            far = "" if count else far_outside(raw.values, signature)
            if far:
                say(f"warning: {far}")
            count += len(raw)
            flagged += sum(map(bool, raw.flags))
            strange += sum(map(bool, rows.get("flagged", ())))
            if time.monotonic() - told > SECONDS_BETWEEN_LINES:
                told = time.monotonic()
                say(f"{counted(count, 'prediction')} so far", "none")
    calibration = ensemble.calibration
    if calibration is not None and calibration.threshold == math.inf:
        say("warning: the column flagged is False everywhere: too few validation samples for a threshold")
    if strange:
        say(f"warning: {counted(strange, 'row')} of {count} unlike validation data, see the column flagged")
    if flagged:
        say(f"warning: {counted(flagged, 'row')} of {count} unlike training, see the column flag")
    if prices is not None:
        console.print(f"decisions: {counts_in_words(decided, names)}", highlight=False, markup=False)
    console.print(f"{counted(count, 'prediction')} in {out}", highlight=False)


def _calibrated_by(ensemble: Ensemble) -> str:
    """Return a sentence on whether predictions are calibrated, and how."""
    found = ensemble.calibration
    if found is None:
        return "predictions are raw: the ensemble is not calibrated"
    scale, title = found.temperature, "temperature"
    if isinstance(ensemble.likelihood, Gaussian):
        scale, title = found.variance_scale, "scale of the variance"
    return f"predictions are calibrated by {counted(found.samples, 'validation sample')}: {title} {scale:.3g}"


def predicted_rows(
    prediction: Prediction, signature: Signature, raw: RawInputs, arrays: bool
) -> dict[str, Sequence[Any]]:
    """Return the columns of some predictions, with the ids of their inputs before them.

    Args:
        prediction: Of the inputs.
        signature: Of the inputs and outputs of the ensemble.
        raw: The inputs.
        arrays: Whether dense predictions keep all positions: a file of arrays has room for them.
    """
    rows: dict[str, Sequence[Any]] = {"id": raw.ids}
    rows |= signature.arrays(prediction) if arrays else signature.summaries(prediction)
    # Rows that are unlike the training data are predicted all the same, and marked in a column.
    if raw.flags:
        rows["flag"] = raw.flags
    return rows


def export(
    *,
    run: Path,
    format: str,
    members: bool,
    level: float,
    task: str | None,
    model: str | None,
    data_dir: Path | None,
    accelerator: str,
    devices: int,
    precision: str,
    out: Path | None,
) -> None:
    """Write a trained ensemble as one file that runs without Pluribus, and check it."""
    # A wrong format, a missing package or a precision that files do not have is found before the run is read.
    find_format(format).load_packages()
    hardware = Hardware(accelerator, devices, precision)
    if not hardware.is_plain:
        raise SettingError(f"the precision of exports must be {PLAIN}, got {precision!r}.")
    ensemble, signature = load_for_prediction(announced_run(run), data_dir, task, model)
    target = out or run / "ensemble"
    writable(target.parent)
    with hardware.predicting(ensemble):
        path = ensemble.export(target, format, members=members, level=level, signature=signature)
    console.print(
        f"{path}: {path.stat().st_size:,} bytes; inputs and outputs are in {description_path(path).name}",
        highlight=False,
        soft_wrap=True,
    )


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


def tasks(*, name: str | None) -> None:
    """List the tasks, or explain the options of one task."""
    if name is None:
        for known in TASKS:
            console.print(f"[bold]{known}[/bold]", highlight=False)
            console.print(
                fill(summary(known), console.width, initial_indent="    ", subsequent_indent="    ")
            )
        return
    options = task_options(name)
    console.print(fill(summary(name), console.width), highlight=False, markup=False)
    console.print("\nOptions, each given as --option name=value:", highlight=False)
    for option in options:
        default = (
            " (required)" if option.required else f" (by default {option.default})" * bool(option.default)
        )
        text = fill(f"    {option.name}{default}: {option.meaning}", console.width, subsequent_indent=" " * 8)
        console.print(text, highlight=False, markup=False)


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
