"""A worker that is killed in the middle of a run: the records are those of one process, each once."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from torch import nn

from pluribus.comparison import record
from pluribus.comparison.comparison import compare
from pluribus.data import two_moons
from pluribus.methods import DeepEnsembles, Single
from pluribus.training import Training
from tests.comparison.test_comparison import without_times

ROOT = Path(__file__).parents[2]
PATIENCE = 400
"""Seconds that a loaded machine may take."""

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Build:
    """Make the network. The first worker to do so kills itself; the process that started it never does."""

    marker: Path
    coordinator: int

    def __call__(self):
        if os.getpid() != self.coordinator:
            try:
                self.marker.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


def run(folder, **where):
    return compare(
        Build(folder / "killed", os.getpid()),
        two_moons(train=60),
        [Single(), DeepEnsembles(members=2)],
        seeds=2,
        training=Training(epochs=2, batch=32),
        network="net",
        shifted=False,
        show=False,
        out=folder / "out",
        **where,
    )


SCRIPT = """
import sys
from pathlib import Path
from tests.comparison.test_killed_worker import run

if __name__ == "__main__":
    folder, executor = Path(sys.argv[1]), sys.argv[2]
    if executor == "local":
        run(folder, workers=2)
    elif executor == "dask":
        from distributed import LocalCluster

        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(local_directory=str(folder / "dask"), **options) as cluster:
            run(folder, executor=cluster.scheduler_address.replace("tcp://", "dask://"))
    else:
        run(folder, executor=executor)
"""


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return without_times(run(tmp_path_factory.mktemp("alone")))


@pytest.mark.parametrize("executor", ["local", "dask", "slurm://local?timeout_min=10"])
def test_a_killed_worker_costs_no_record_and_doubles_none(executor, expected, tmp_path):
    pytest.importorskip({"d": "distributed", "s": "submitit"}.get(executor[0], "torch"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    ended = subprocess.run(
        [sys.executable, script, tmp_path, executor],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "killed").exists()
    out = tmp_path / "out"
    keys = [json.loads(line)["key"] for line in (out / record.FILE).read_text().splitlines()]
    assert sorted(keys) == sorted(one.key for one in expected)
    found = {one.key: one for one in without_times(record.read([out]))}
    assert found == {one.key: one for one in expected}
    for folder in (out / "runs").iterdir():
        assert {"ensemble", "run.json", "signature.json", "log.csv"} <= {one.name for one in folder.iterdir()}
