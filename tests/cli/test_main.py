"""The command line: what it prints, what it writes, what it refuses."""

import csv
import json
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from typer.main import get_command
from typer.testing import CliRunner

import pluribus as pl
from pluribus.backbones import BACKBONES
from pluribus.cli import commands, run_file
from pluribus.cli import main as cli
from pluribus.cli.start import COMPUTING
from pluribus.comparison import record, run_folder
from pluribus.data import TASKS, csv_file
from pluribus.export.exporting import FORMATS
from pluribus.methods import EMP
from tests.report.records import classes, numbers

QUICK = ["--task", "two_moons", "--option", "train=60", "--epochs", "2"]


def invoke(*arguments: object):
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_compare_prints_a_table_and_keeps_records(tmp_path):
    printed = invoke(
        "compare",
        *QUICK,
        "--methods",
        "single,mc_dropout(draws=2)",
        "--seeds",
        2,
        "--workers",
        1,
        "--out",
        tmp_path,
    )
    assert "mc_dropout" in printed
    assert "±" in printed
    assert len((tmp_path / "records.jsonl").read_text().splitlines()) == 4
    assert "mc_dropout(draws=2)" in (tmp_path / "report.html").read_text()


def test_report_merges_runs_within_a_budget(tmp_path):
    for name, runs in (("a", [classes(skill=1.0)]), ("b", [classes("deep_ensembles", skill=4.0), numbers()])):
        for run in runs:
            record.append(tmp_path / name, run)
    printed = invoke("report", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "c")
    assert "digits · cnn" in printed
    assert "houses · mlp" in printed
    assert "Take deep_ensembles" in printed
    assert "it has the lowest NLL" in " ".join(printed.split())
    assert "Take deep_<wbr>ensembles" in (tmp_path / "c" / "report.html").read_text()
    invoke("report", tmp_path / "a", tmp_path / "b", "--budget", "parameters<=2x")
    assert "Take single" in (tmp_path / "a" / "report.html").read_text()


def test_compare_and_report_refuse_a_wrong_budget_first(tmp_path):
    with pytest.raises(pl.SettingError, match="a budget must limit"):
        invoke("compare", *QUICK, "--budget", "money<=3x", "--out", tmp_path)
    assert not (tmp_path / "records.jsonl").exists()
    with pytest.raises(pl.SettingError, match="a budget must limit"):
        invoke("report", tmp_path, "--budget", "money<=3x")


def test_compare_refuses_an_unknown_executor_before_it_trains(tmp_path):
    with pytest.raises(pl.SettingError, match="executor must be local, dask://host:port"):
        invoke("compare", *QUICK, "--executor", "kubernetes", "--out", tmp_path)
    assert not (tmp_path / record.FILE).exists()


def test_compare_refuses_a_metric_that_there_is_not_before_it_trains(tmp_path):
    with pytest.raises(pl.SettingError, match="metric must be one of accuracy"):
        invoke("compare", *QUICK, "--metric", "elo", "--out", tmp_path)
    assert not (tmp_path / record.FILE).exists()


def test_the_report_of_a_file_lies_beside_it(tmp_path):
    record.append(tmp_path, classes())
    invoke("report", tmp_path / record.FILE)
    assert (tmp_path / "report.html").is_file()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a trained ensemble that tells the pets of table.csv, beside it, by a, b, c and d."""
    folder = tmp_path_factory.mktemp("cli")
    x = np.random.default_rng(0).normal(size=(60, 4))
    rows = [[*row, "dog" if row.sum() > 0 else "cat"] for row in x]
    write(folder / "table.csv", [[*"abcd", "pet"], *rows])
    table = [f"path={folder / 'table.csv'}", "target=pet", "likelihood=categorical"]
    options = [part for one in table for part in ("--option", one)]
    method = ["--method", "deep_ensembles(members=2)", "--accelerator", "cpu", "--epochs", 1]
    printed = invoke("train", "--task", "csv", *options, *method, "--out", folder / "run")
    assert "1 epoch; the ensemble is in" in printed
    return folder / "run"


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_trained_run_is_measured(run, tmp_path):
    assert "accuracy" in invoke("evaluate", run, "--out", tmp_path)
    (found,) = record.read([tmp_path])
    assert found.metrics["nll"] > 0
    assert (found.network, found.training["epochs"]) == ("mlp", 1)
    assert found.cost["parameters_ratio"] == 2


def test_a_trained_run_is_examined_and_defects_are_named(run):
    """A run of one epoch is still improving; members that became one are found besides."""
    assert " ".join(invoke("doctor", run).split()) == (
        "still_improving: epoch 1 of 1 was the best on validation data. Train for more steps."
    )
    file = run / "ensemble" / "weights.safetensors"
    sound, settings = file.read_bytes(), (run / "ensemble" / "ensemble.json").read_bytes()
    try:
        ensemble = run_file.load_run(run, None).ensemble
        with torch.no_grad():
            for parameter in ensemble.members.tensors.own.parameters():
                parameter[1] = parameter[0]
        ensemble.save(run / "ensemble")
        printed = " ".join(invoke("doctor", run).split())
    finally:
        file.write_bytes(sound)
        (run / "ensemble" / "ensemble.json").write_bytes(settings)
    assert printed.startswith("collapsed: 2 members differ by 0,")
    assert "Start members apart" in printed
    (run / "training.pt").rename(run / "elsewhere.pt")
    try:
        assert invoke("doctor", run).strip() == "nothing found"
    finally:
        (run / "elsewhere.pt").rename(run / "training.pt")


def test_predictions_of_a_calibrated_run_have_sets_and_flags(run, tmp_path):
    invoke("predict", run, run.parent / "table.csv", "--out", tmp_path / "1.csv")
    rows = read(tmp_path / "1.csv")
    assert {row["flagged"] for row in rows} <= {"True", "False"}
    assert {row["set"] for row in rows} <= {"", "cat", "dog", "cat | dog"}
    assert all(float(row["ood_score"]) == float(row["ood_score"]) for row in rows)


def test_predictions_follow_the_names_of_columns_and_tell_those_of_classes(run, tmp_path):
    header, *rows = csv.reader((run.parent / "table.csv").read_text().splitlines())
    write(tmp_path / "turned.csv", [header[3::-1], *(row[3::-1] for row in rows)])
    printed = invoke("predict", run, run.parent / "table.csv", "--out", tmp_path / "1.csv")
    invoke("predict", run, tmp_path / "turned.csv", "--out", tmp_path / "2.csv")
    assert "60 predictions in" in printed
    found = read(tmp_path / "1.csv")
    assert found == read(tmp_path / "2.csv")
    for row in found:
        assert float(row["p_cat"]) + float(row["p_dog"]) == pytest.approx(1, abs=1e-5)
        assert row["labels"] == ("cat" if float(row["p_cat"]) > 0.5 else "dog")


def test_predictions_tell_whom_to_defer_where_costs_are_given(run, tmp_path):
    costs = ["--costs", "miss=10,alarm=1,defer=0.5"]
    result = CliRunner().invoke(
        cli.app,
        [str(one) for one in ("predict", run, run.parent / "table.csv", "--out", tmp_path / "1.csv", *costs)],
    )
    # A narrow terminal cuts lines.
    assert "costs: 10 for the answer cat where dog is right" in " ".join(result.stderr.split())
    found = read(tmp_path / "1.csv")
    for row in found:
        dog = float(row["p_dog"])
        prices = {"cat": 10 * dog, "dog": 1 - dog, "defer": 0.5}
        assert row["decision"] == min(prices, key=prices.get)
    deferred = sum(row["decision"] == "defer" for row in found)
    assert deferred == 0 or f"{deferred} defer" in result.stdout
    assert "decisions: " in result.stdout


def test_class_names_that_look_like_formulas_are_escaped(tmp_path):
    formula = "=cmd|' /C calc'!A0"
    write(tmp_path / "table.csv", [["a", "pet"], *([i % 7, (formula, "cat")[i % 2]] for i in range(40))])
    table = [f"path={tmp_path / 'table.csv'}", "target=pet", "likelihood=categorical"]
    options = [part for one in table for part in ("--option", one)]
    method = ["--method", "single", "--accelerator", "cpu", "--epochs", 1]
    invoke("train", "--task", "csv", *options, *method, "--out", tmp_path / "run")
    invoke("predict", tmp_path / "run", tmp_path / "table.csv", "--out", tmp_path / "1.csv")
    cells = [cell for row in csv.reader((tmp_path / "1.csv").read_text().splitlines()) for cell in row]
    assert f"'{formula}" in cells
    assert not any(cell.startswith("=") for cell in cells)


def test_a_run_predicts_without_its_data_wherever_it_lies(tmp_path):
    rows = [[i, ("red", "blue")[i % 2], i * 7 % 13 or "", f"note {i}", 3 * (i * 7 % 13)] for i in range(60)]
    write(tmp_path / "table.csv", [["id", "colour", "size", "note", "price"], *rows])
    options = ["--option", f"path={tmp_path / 'table.csv'}", "--option", "target=price"]
    method = ["--method", "deep_ensembles(members=2)", "--accelerator", "cpu", "--epochs", 1]
    invoke("train", "--task", "csv", *options, *method, "--out", tmp_path / "run")
    write(tmp_path / "new.csv", [["size", "colour"], [3, "red"], ["", "blue"], [4, "green"]])
    invoke("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "1.csv")
    (tmp_path / "table.csv").unlink()
    (tmp_path / "run").rename(tmp_path / "handed_over")
    invoke("predict", tmp_path / "handed_over", tmp_path / "new.csv", "--out", tmp_path / "2.csv")
    assert (tmp_path / "1.csv").read_bytes() == (tmp_path / "2.csv").read_bytes()
    assert [row["flag"] for row in read(tmp_path / "2.csv")] == ["", "", "unseen colour=green"]


def test_kinds_of_columns_are_shown_before_training(tmp_path):
    rows = [[i, ("red", "blue")[i % 2], i * 7 % 13] for i in range(60)]
    write(tmp_path / "table.csv", [["id", "colour", "price"], *rows])
    options = ["--option", f"path={tmp_path / 'table.csv'}", "--option", "target=price"]
    arguments = [
        "train",
        "--task",
        "csv",
        *options,
        "--method",
        "single",
        "--accelerator",
        "cpu",
        "--epochs",
        1,
    ]
    result = CliRunner().invoke(cli.app, [str(one) for one in (*arguments, "--out", tmp_path / "run")])
    assert "id      dropped   0        0       an id: a whole number of its own" in result.stderr
    assert "colour  category  2        0       blue, red" in result.stderr


def test_inputs_far_from_those_of_training_are_told_on_stderr(run, tmp_path):
    np.save(tmp_path / "x.npy", np.array([[100, 0, 0, 0]]))
    arguments = ["predict", run, tmp_path / "x.npy", "--out", tmp_path / "far.csv"]
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    assert "warning: inputs must be raw" in result.stderr
    assert "'a' ranges from 100 to 100" in result.stderr
    assert "1 prediction in" in result.stdout


def test_predict_refuses_a_table_without_names_and_a_folder_to_write(run, tmp_path):
    write(tmp_path / "x.csv", [[1, 2, 3, 4], [5, 6, 7, 8]])
    with pytest.raises(pl.InputError, match="must name the 4 features a, b, c, d, got numbers"):
        invoke("predict", run, tmp_path / "x.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(pl.SettingError, match=r"--out must be a file that can be written, got .* Is a dir"):
        invoke("predict", run, run.parent / "table.csv", "--out", tmp_path / "folder.csv")


def test_a_run_whose_data_is_gone_says_which(run, tmp_path):
    line = (run / run_folder.FILE).read_text().replace("table.csv", "gone.csv")
    (tmp_path / run_folder.FILE).write_text(line)
    with pytest.raises(pl.InputError, match=r"needs the data that it was trained on \(csv, path=.*gone.csv"):
        invoke("predict", tmp_path, "x.npy")


def test_whole_numbers_that_may_be_classes_are_told_once(run, tmp_path, capsys):
    write(tmp_path / "t.csv", [["a", "y"], *([i, i % 3] for i in range(30))])
    options = [f"path={tmp_path / 't.csv'}", "target=y"]
    commands.hint("csv", csv_file(tmp_path / "t.csv", "y"), options)
    assert "add --option likelihood=categorical" in capsys.readouterr().err
    commands.hint("csv", csv_file(tmp_path / "t.csv", "y"), [*options, "likelihood=gaussian"])
    assert "hint" not in capsys.readouterr().err


@pytest.mark.parametrize("failed", [1, 2])
def test_compare_ends_with_an_error_where_runs_failed(failed, tmp_path, monkeypatch):
    runs = [classes(), classes("deep_ensembles")]
    runs = [replace(one, error="RuntimeError: no" if i < failed else "") for i, one in enumerate(runs)]

    def compared(*_, out, **__):
        for one in runs:
            record.append(out, one)
        return runs

    monkeypatch.setattr(commands, "run_comparison", compared)
    result = CliRunner().invoke(cli.app, ["compare", *QUICK, "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert f"error: {failed} of 2 runs failed" in result.stderr


def test_an_interrupted_comparison_says_how_to_go_on(tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "run_comparison", stopped)
    result = CliRunner().invoke(cli.app, ["compare", *QUICK, "--out", str(tmp_path)])
    assert result.exit_code == 130
    assert "stopped: run the same line again to continue" in result.stderr


def test_a_place_that_cannot_be_written_to_is_refused_before_training(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(pl.SettingError, match=r"--out must be a folder .* Choose another"):
            invoke("compare", *QUICK, "--out", place)


def test_the_version_is_printed():
    assert invoke("--version") == f"pluribus {pl.__version__}\n"


def help_of(command, name):
    (found,) = (one for one in get_command(cli.app).commands[command].params if one.name == name)
    return found.help


def test_help_names_tasks_and_networks_and_says_what_is_read_and_written():
    assert help_of("train", "task").startswith(", ".join(TASKS))
    assert help_of("train", "model").startswith(", ".join(BACKBONES))
    assert "or all, with at most 16 draws each" in help_of("compare", "methods")
    assert "by default that of the first records" in help_of("report", "out")
    assert "before scaling" in help_of("predict", "inputs")
    assert "CSV file" in help_of("predict", "out")
    assert help_of("export", "format") == ", ".join(FORMATS)


@pytest.mark.parametrize("width", [80, 140])
def test_help_does_not_cut_its_examples(width):
    result = CliRunner().invoke(cli.app, ["compare", "--help"], terminal_width=width)
    assert "single,deep_ensembles(members=5)" in result.output
    assert "multiply_adds<=1.5x,parameters<=2M" in result.output
    assert max(map(len, result.output.splitlines())) <= width


def test_help_lists_commands_by_whole_sentences():
    listed = CliRunner().invoke(cli.app, ["--help"], terminal_width=80).output.partition("Commands:")[2]
    # Sentences that are too long are cut, with dots at their end.
    assert "compare " in listed
    assert "..." not in listed


def test_methods_lists_every_method_with_its_settings():
    printed = invoke("methods")
    for name in pl.Method.known():
        assert name in printed


def test_methods_says_what_the_settings_of_one_mean():
    printed = invoke("methods", "emp")
    assert printed.startswith("K options for each patched layer")
    for field in fields(EMP):
        assert f"\n    {field.name}: " in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert ">>>" not in printed
    with pytest.raises(pl.SettingError, match="Did you mean 'emp'"):
        invoke("methods", "EMP")


OWN = """
import torch
import pluribus as pl
from pluribus.data import Split, Task


def build():
    return torch.nn.Linear(3, 2)


def task():
    x = torch.randn(90, 3, generator=torch.Generator().manual_seed(0))
    y = (x.sum(1) > 0).long()
    parts = [Split(x[i::3], y[i::3]) for i in range(3)]
    return Task("mine", *parts, likelihood=pl.Categorical(), classes=2)


def nonsense():
    return 3
"""


def test_a_users_own_module_and_task_are_compared(tmp_path, monkeypatch):
    (tmp_path / "my_own_code.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    options = [
        "--model",
        "my_own_code:build",
        "--task",
        "my_own_code:task",
        "--methods",
        "single,deep_ensembles",
    ]
    printed = invoke("compare", *options, "--epochs", 2, "--seeds", 1, "--workers", 1)
    assert "mine · my_own_code:build" in printed
    assert (tmp_path / "pluribus_runs" / "compare" / "records.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "digit"], "Did you mean 'digits'"),
        (["--model", "resnet19"], "Did you mean 'resnet1"),
        (["--model", "nowhere.to.be:found"], "nowhere.to.be:found must name a function"),
        (["--task", "math:pi"], "must name a function, got float"),
        (["--option", "trian=3"], "Did you mean 'train'"),
    ],
)
def test_wrong_names_are_errors_before_any_training(arguments, message, tmp_path):
    with pytest.raises(pl.PluribusError, match=message):
        invoke("compare", *arguments, "--out", tmp_path)
    assert not (tmp_path / "runs").exists()


def test_costs_are_counted_in_records_and_on_the_page(run, tmp_path):
    costs = ["--costs", "miss=10,alarm=1,defer=0.5"]
    printed = invoke("evaluate", run, *costs, "--out", tmp_path)
    assert "expected_cost" in printed
    assert "Share of the samples of class dog that are found." in " ".join(printed.split())
    (found,) = record.read([tmp_path])
    assert found.decisions["cost_miss"] == 10
    assert len(found.intervals["threshold_sensitivity"]) == 2
    printed = invoke("report", tmp_path, "--costs", "wrong=2")
    assert "(wrong 2) a decision costs" in (tmp_path / "report.html").read_text()
    with pytest.raises(pl.SettingError, match="Did you mean 'miss'"):
        invoke("compare", *QUICK, "--costs", "mis=3", "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_export_writes_a_file_that_is_described_by_the_run(run, tmp_path):
    printed = invoke("export", run, "--format", "pt2", "--out", tmp_path / "pets")
    assert "pets.pt2: " in printed
    found = json.loads((tmp_path / "pets.pt2.json").read_text())
    assert found["classes"] == ["cat", "dog"]
    assert found["method"]["members"] == 2
    assert found["preprocessing"]["feature_names"] == [*"abcd"]
    assert found["preprocessing"]["scaling"]["mean"]
    assert "ok" in invoke("verify", tmp_path)
    module = torch.export.load(tmp_path / "pets.pt2").module()
    assert module(torch.zeros(3, 4))["probabilities"].shape == (3, 2)


def test_export_refuses_a_format_that_there_is_not_before_it_reads_the_run(tmp_path):
    with pytest.raises(pl.SettingError, match="format must be one of onnx, pt2, openvino, got 'onx'"):
        invoke("export", tmp_path, "--format", "onx")
    with pytest.raises(pl.SettingError, match="precision of exports must be 32-true, got 'bf16-mixed'"):
        invoke("export", tmp_path, "--precision", "bf16-mixed")


def test_tasks_lists_every_task_and_the_options_of_one():
    printed = invoke("tasks")
    for name in TASKS:
        assert f"{name}\n" in printed
    printed = invoke("tasks", "csv")
    assert "path (required): A file in UTF-8" in printed
    assert "delimiter (by default ,): Character between cells;" in printed
    assert max(map(len, printed.splitlines())) <= 80
    with pytest.raises(pl.SettingError, match="Did you mean 'csv'"):
        invoke("tasks", "cvs")


def test_commands_that_compute_choose_device_and_precision():
    chosen = {
        name
        for name, command in get_command(cli.app).commands.items()
        if {"accelerator", "devices", "precision"} <= {one.name for one in command.params}
    }
    assert chosen == set(COMPUTING)
    # The others read records and files, print lists, or serve a file without PyTorch.
    assert set(get_command(cli.app).commands) - chosen == {"report", "serve", "verify", "methods", "tasks"}


def test_trained_ensembles_predict_in_other_precisions(run, tmp_path):
    table = run.parent / "table.csv"
    invoke("predict", run, table, "--precision", "bf16-mixed", "--out", tmp_path / "1.csv")
    assert len(read(tmp_path / "1.csv")) == 60
    with pytest.raises(pl.SettingError, match="precision of predictions must be"):
        invoke("predict", run, table, "--precision", "64-true", "--out", tmp_path / "2.csv")
    with pytest.raises(pl.SettingError, match="predictions need 1 device"):
        invoke("evaluate", run, "--devices", 2, "--out", tmp_path)


def test_a_trained_network_is_tuned_and_its_run_predicts(run, tmp_path):
    table = run.parent / "table.csv"
    options = [f"path={table}", "target=pet", "likelihood=categorical"]
    options = [part for one in options for part in ("--option", one)]
    network = run_file.load_run(run, None).build()
    torch.save({"state_dict": network.state_dict()}, tmp_path / "weights.pt")
    chosen = ["--method", "lora_ensembles(members=2)", "--epochs", 1, "--accelerator", "cpu"]
    arguments = ["finetune", tmp_path / "weights.pt", "--task", "csv", *options, *chosen]
    printed = invoke(*arguments, "--out", tmp_path / "tuned")
    for row in ("before", "accuracy", "NLL calibrated", "ECE", "parameters"):
        assert row in printed
    assert [one.method["kind"] for one in record.read([tmp_path / "tuned"])] == ["single", "lora_ensembles"]
    invoke("predict", tmp_path / "tuned", table, "--out", tmp_path / "found.csv")
    assert len((tmp_path / "found.csv").read_text().splitlines()) == 61
    with pytest.raises(pl.CheckpointError, match="must be a file of weights"):
        invoke("finetune", tmp_path / "none.pt", "--task", "csv", *options, "--out", tmp_path / "other")


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 3 TiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 3280000000000 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 20 GiB"),
    ],
)
def test_too_little_memory_is_one_line(monkeypatch, capsys, error):
    def fail(standalone_mode):
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert "not enough memory" in printed.out + printed.err


def test_other_errors_of_torch_are_not_hidden(monkeypatch):
    def fail(standalone_mode):
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        cli.main()
