"""The command line: what it prints, what it writes, what it refuses."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

import pluribus as pl
from pluribus import cli, record
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
    assert "Take deep_<wbr>ensembles" in (tmp_path / "c" / "report.html").read_text()
    invoke("report", tmp_path / "a", tmp_path / "b", "--budget", "parameters<=2x")
    assert "Take single" in (tmp_path / "a" / "report.html").read_text()


def test_compare_and_report_refuse_a_wrong_budget_first(tmp_path):
    with pytest.raises(pl.SettingError, match="a budget limits"):
        invoke("compare", *QUICK, "--budget", "money<=3x", "--out", tmp_path)
    assert not (tmp_path / "records.jsonl").exists()
    with pytest.raises(pl.SettingError, match="a budget limits"):
        invoke("report", tmp_path, "--budget", "money<=3x")


def test_compare_refuses_a_metric_that_there_is_not_before_it_trains(tmp_path):
    with pytest.raises(pl.SettingError, match="metric must be one of accuracy"):
        invoke("compare", *QUICK, "--metric", "elo", "--out", tmp_path)
    assert not (tmp_path / record.FILE).exists()


def test_the_report_of_a_file_lies_beside_it(tmp_path):
    record.append(tmp_path, classes())
    invoke("report", tmp_path / record.FILE)
    assert (tmp_path / "report.html").is_file()


def test_a_trained_run_is_measured_and_predicts(tmp_path):
    invoke(
        "train",
        *QUICK,
        "--method",
        "deep_ensembles(members=2)",
        "--out",
        tmp_path / "run",
        "--accelerator",
        "cpu",
    )
    printed = invoke("evaluate", tmp_path / "run", "--out", tmp_path / "measured")
    assert "accuracy" in printed
    (found,) = record.read([tmp_path / "measured"])
    assert found.metrics["nll"] > 0
    assert (found.network, found.training["epochs"]) == ("mlp", 2)
    assert found.cost["parameters_ratio"] == 2
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32))
    invoke("predict", tmp_path / "run", tmp_path / "x.npy", "--out", tmp_path / "predictions.csv")
    with (tmp_path / "predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 7
    assert float(rows[0]["p0"]) + float(rows[0]["p1"]) == pytest.approx(1, abs=1e-5)


def test_methods_lists_every_method_with_its_settings():
    printed = invoke("methods")
    for name in pl.Method.known():
        assert name in printed


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
        (["--task", "math:pi"], "must name a function, however: it is of type float"),
        (["--option", "trian=3"], "Did you mean 'train'"),
    ],
)
def test_wrong_names_are_errors_before_any_training(arguments, message, tmp_path):
    with pytest.raises(pl.PluribusError, match=message):
        invoke("compare", *arguments, "--out", tmp_path)
    assert not (tmp_path / "runs").exists()
