"""`pluribus monitor` reports inputs that no longer look like validation data."""

import numpy as np
import pytest
from typer.testing import CliRunner

import pluribus as pl
from pluribus.cli.main import app
from pluribus.cli.monitor_run import make_monitor
from pluribus.data import two_moons

RUN = ("--task", "two_moons", "--method", "deep_ensembles(members=2)", "--model", "mlp", "--epochs", "3")


def invoke(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitor")
    done = invoke("train", *RUN, "--out", folder / "run")
    assert done.exit_code == 0, done.output
    return folder / "run"


def test_monitor_passes_data_like_validation_and_reports_a_shift(run, tmp_path):
    task = two_moons(seed=7)
    usual = task.scaling.invert(task.test.x).numpy()[:300]
    np.save(tmp_path / "usual.npy", usual)
    done = invoke("monitor", run, tmp_path / "usual.npy")
    assert done.exit_code == 0, done.output
    assert "no alarm at level 0.01: they look like validation data" in done.output
    np.save(tmp_path / "shifted.npy", np.concatenate((usual, usual * 0.2 + 1)))
    done = invoke("monitor", run, tmp_path / "shifted.npy")
    assert done.exit_code == 1, done.output
    assert "alarm at level 0.01: from about sample" in done.output
    since = int(done.output.split("from about sample ")[1].split()[0])
    assert 250 < since < 350


def test_an_ensemble_without_scores_is_refused(tmp_path):
    import torch

    ensemble = pl.convert(torch.nn.Linear(2, 2), pl.methods.DeepEnsembles(members=2))
    with pytest.raises(pl.SettingError, match="must hold a calibrated ensemble"):
        make_monitor(ensemble, tmp_path, 0.01)
