"""Submissions: lost jobs run once more, finished ones are handed over, the rest is cancelled."""

from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor

import pytest

import pluribus as pl
from pluribus.comparison.submission import Submission
from pluribus.comparison.workers import Lost


class Scripted(Executor):
    """Return futures with the results or exceptions of a script, in the order of submission."""

    def __init__(self, *script):
        self.script, self.futures = list(script), []

    def submit(self, fn, /, *args, **kwargs):
        outcome, future = self.script.pop(0), Future()
        self.futures.append(future)
        if isinstance(outcome, BaseException):
            future.set_exception(outcome)
        elif outcome == "cancel":
            future.cancel()
            future.set_running_or_notify_cancel()
        elif outcome != "wait":
            future.set_result(outcome)
        return future


def run(executor, jobs, retried=None):
    note = lambda job, reason: [].append((job, reason)) if retried is None else retried.append((job, reason))
    with Submission(str.upper, jobs, executor, note) as submission:
        return dict(submission.results())


def test_all_jobs_have_results():
    with ThreadPoolExecutor(2) as pool:
        assert run(pool, ["a", "b", "c"]) == {"a": "A", "b": "B", "c": "C"}


def test_a_lost_job_runs_once_more_and_is_then_given_up():
    retried = []
    executor = Scripted(OSError("gone"), "B", "A")
    assert run(executor, ["a", "b"], retried) == {"a": "A", "b": "B"}
    assert retried == [("a", "failed with OSError: gone")]
    found = run(Scripted("cancel", OSError("x" * 1000)), ["a"])["a"]
    assert isinstance(found, Lost)
    assert found.reason.startswith("failed with OSError: … xxx")
    assert len(found.reason) < 400


def test_a_broken_executor_is_an_error_after_finished_jobs_are_handed_over():
    executor, found = Scripted(BrokenExecutor("killed"), "B", "wait"), []
    with (
        Submission(str.upper, ["a", "b", "c"], executor, lambda job, reason: None) as submission,
        pytest.raises(pl.PluribusError, match=r"got BrokenExecutor from Scripted.*Finished runs are kept"),
    ):
        found.extend(submission.results())
    assert found == [("b", "B")]
    # Leaving the block cancelled the job that had not finished.
    assert executor.futures[2].cancelled()


def test_an_executor_that_was_shut_down_is_refused():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(pl.PluribusError, match="must accept jobs until all are done, got RuntimeError"):
        run(pool, ["a"])
