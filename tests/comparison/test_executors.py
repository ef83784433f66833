"""Executors by name: what is refused, and that cancelled tasks of Dask know it."""

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

import pluribus as pl
from pluribus.comparison import executors
from pluribus.comparison.executors import check_executor, is_cancelled, opened
from pluribus.comparison.slurm import SlurmExecutor

PATIENCE = 120
"""Seconds that a loaded machine may take."""


@pytest.mark.parametrize("executor", ["dsk://host:1", 3, "slurm", "host:8786"])
def test_unknown_executors_are_refused(executor, tmp_path):
    with pytest.raises(pl.SettingError, match=r"executor must be local, dask://host:port, slurm://"):
        check_executor(executor)


def test_an_executor_as_an_object_stays_open(tmp_path):
    with ThreadPoolExecutor(1) as pool:
        with opened(pool, tmp_path) as found:
            assert found is pool
        assert pool.submit(int).result() == 0


@pytest.mark.parametrize(("address", "package"), [("dask://host:1", "distributed"), ("slurm://", "submitit")])
def test_a_missing_package_is_named_with_its_extra(address, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    extra = address.partition(":")[0]
    with pytest.raises(pl.SettingError, match=f"{package}.*extra {extra}"), opened(address, tmp_path):
        pass


def test_slurm_takes_its_parameters_from_the_query(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(SlurmExecutor, "__init__", lambda self, *args, **named: made.append((args, named)))
    monkeypatch.setattr(SlurmExecutor, "shutdown", lambda self, **named: made.append(named))
    with opened("slurm://local?slurm_partition=gpu&timeout_min=90", tmp_path):
        pass
    arguments = ((tmp_path / "jobs", "local"), {"slurm_partition": "gpu", "timeout_min": 90})
    assert made == [arguments, {"wait": False, "cancel_futures": True}]


@pytest.mark.parametrize(("state", "expected"), [("executing", False), ("cancelled", True)])
def test_a_task_of_dask_knows_that_it_was_cancelled(state, expected, monkeypatch):
    tasks = {"key": SimpleNamespace(state=state)}
    worker = SimpleNamespace(get_current_task=lambda: "key", state=SimpleNamespace(tasks=tasks))
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(get_worker=lambda: worker))
    assert is_cancelled() is expected


def test_code_outside_of_dask_is_not_cancelled(monkeypatch):
    monkeypatch.delitem(sys.modules, "distributed", raising=False)
    assert not is_cancelled()


@pytest.mark.slow
def test_a_cancelled_task_of_dask_ends_by_itself(tmp_path):
    """With a real scheduler and worker, in threads of this process; reached by its address."""
    distributed = pytest.importorskip("distributed")
    started, ended = threading.Event(), threading.Event()

    def work():
        started.set()
        deadline = time.monotonic() + PATIENCE
        while not is_cancelled() and time.monotonic() < deadline:
            time.sleep(0.05)
        if time.monotonic() < deadline:
            ended.set()

    options = {"processes": False, "protocol": "tcp", "n_workers": 1, "threads_per_worker": 1}
    with distributed.LocalCluster(
        dashboard_address=None, local_directory=str(tmp_path), **options
    ) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        with opened(address, tmp_path) as executor:
            assert executor.submit(pow, 2, 10).result(PATIENCE) == 1024
            WAITING.update(work=work)
            future = executor.submit(run_waiting)
            assert started.wait(PATIENCE)
            future.cancel()
            assert ended.wait(PATIENCE)


WAITING = {}


def run_waiting():
    """Run what cannot be pickled, in the same process."""
    WAITING["work"]()


@pytest.mark.slow
def test_an_address_without_a_scheduler_is_an_error(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "CONNECT_SECONDS", 1)
    message = r"got '127\.0\.0\.1:9'.*dask scheduler"
    with pytest.raises(pl.SettingError, match=message), opened("dask://127.0.0.1:9", tmp_path):
        pass
