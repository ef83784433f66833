"""SLURM: jobs of submitit as ordinary futures. Its local cluster stands for a real one."""

import time
from concurrent.futures import wait

import pytest

import pluribus as pl
from pluribus.comparison import slurm
from pluribus.comparison.slurm import SlurmExecutor

pytest.importorskip("submitit")
PATIENCE = 120
"""Seconds that a loaded machine may take."""


class Job:
    """A job of submitit that is done when `outcome` is set."""

    outcome = None
    cancelled = False

    def done(self):
        return self.outcome is not None

    def result(self):
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def cancel(self, check):
        self.cancelled = True


@pytest.fixture
def executor(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.01)
    made = SlurmExecutor(tmp_path, cluster="local")
    made.made_jobs = []

    def submit(*call):
        made.made_jobs.append(Job())
        return made.made_jobs[-1]

    monkeypatch.setattr(made.submitit, "submit", submit)
    yield made
    made.shutdown(cancel_futures=True)


def test_futures_end_with_their_jobs(executor):
    futures = [executor.submit(int) for _ in range(3)]
    executor.made_jobs[0].outcome, executor.made_jobs[1].outcome = 7, ValueError("no luck")
    finished, waiting = wait(futures, 1)
    assert finished == {*futures[:2]}
    assert waiting == {futures[2]}
    assert futures[0].result() == 7
    assert str(futures[1].exception()) == "no luck"


def test_a_cancelled_future_cancels_its_job(executor):
    futures = [executor.submit(int) for _ in range(2)]
    futures[0].cancel()
    assert [job.cancelled for job in executor.made_jobs] == [True, False]
    executor.shutdown(cancel_futures=True)
    assert [job.cancelled for job in executor.made_jobs] == [True, True]
    assert all(future.cancelled() for future in futures)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)


def test_unknown_clusters_and_parameters_are_refused(tmp_path):
    for options in ({"cluster": "nowhere"}, {"cluster": "local", "partitoin": "gpu"}):
        with pytest.raises(pl.SettingError, match="must be what submitit offers"):
            SlurmExecutor(tmp_path, **options)


@pytest.mark.slow
def test_a_job_of_the_local_cluster_runs_and_can_be_stopped(tmp_path):
    executor = SlurmExecutor(tmp_path, cluster="local", timeout_min=5)
    assert executor.submit(pow, 2, 10).result(PATIENCE) == 1024
    future = executor.submit(time.sleep, 10 * PATIENCE)
    (job,) = executor.jobs.values()
    time.sleep(1)
    executor.shutdown(cancel_futures=True)
    deadline = time.monotonic() + PATIENCE
    while not job.done():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert future.cancelled()
