"""Submission: jobs on any `concurrent.futures.Executor`, run again where a worker was lost.

A job catches the errors of the user's code itself. An exception of its future therefore means that the worker
or the way to it failed, and the job is submitted once more.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from typing import Any, Generic, Self, TypeVar

from pluribus.comparison.workers import ATTEMPTS, Lost
from pluribus.errors import PluribusError

Job = TypeVar("Job")
Result = TypeVar("Result")

ONE_RUN = threading.Lock()
"""Held by a job while it trains. Torch has one random generator, so threads would disturb each other."""

# Python handles Ctrl-C between waits: a wait without end inside a lock delays it on some platforms.
POLL_SECONDS = 1.0
LONGEST_REASON = 300
"""Characters of a reason; some executors put a whole log into their exception."""


class Submission(Generic[Job, Result]):
    """Run `function(job)` for every job by an executor.

    Use it as a context manager: leaving the block cancels all jobs that are not finished.

    Args:
        function: A function at the top of a module.
        jobs: Arguments; the executor must be able to pickle them.
        executor: Where they run.
        on_retry: Callback `(job, reason)`; a job whose worker was lost is about to run again.
    """

    def __init__(
        self,
        function: Callable[[Job], Result],
        jobs: Sequence[Job],
        executor: Executor,
        on_retry: Callable[[Job, str], None],
    ) -> None:
        self.function, self.jobs, self.executor, self.on_retry = function, jobs, executor, on_retry
        self.failed = [0] * len(jobs)
        self.pending: dict[Future[Result], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        for future in self.pending:
            future.cancel()
        self.pending.clear()

    def results(self) -> Iterator[tuple[Job, Result | Lost]]:
        """Yield each job with its result, in the order in which they finish.

        Raises:
            PluribusError: The executor as a whole no longer works.
        """
        for number in range(len(self.jobs)):
            self._submit(number)
        while self.pending:
            finished, _ = wait(self.pending, POLL_SECONDS, FIRST_COMPLETED)
            # All that finished is handed over before an error of the executor ends everything.
            for future in sorted(finished, key=lambda one: (_is_broken(one), self.pending[one])):
                yield from self._take(future)

    def _submit(self, number: int) -> None:
        try:
            future = self.executor.submit(self.function, self.jobs[number])
        # Executors that are broken or shut down raise different kinds of RuntimeError.
        except RuntimeError as error:
            raise _broken(self.executor, error) from error
        self.pending[future] = number

    def _take(self, future: "Future[Result]") -> Iterator[tuple[Job, Result | Lost]]:
        """Yield the result of a finished future, or submit its job again."""
        number = self.pending.pop(future)
        job = self.jobs[number]
        try:
            result = future.result()
        except BrokenExecutor as error:
            raise _broken(self.executor, error) from error
        except (Exception, CancelledError) as error:
            reason = _reason(error)
        else:
            yield job, result
            return
        self.failed[number] += 1
        if self.failed[number] >= ATTEMPTS:
            yield job, Lost(reason)
            return
        self.on_retry(job, reason)
        self._submit(number)


def _is_broken(future: "Future[Any]") -> bool:
    return not future.cancelled() and isinstance(future.exception(), BrokenExecutor)


def _reason(error: BaseException) -> str:
    """Return why a job was lost, in one line."""
    if isinstance(error, CancelledError):
        return "was lost: the executor cancelled the job"
    text = " ".join(str(error).split())
    if len(text) > LONGEST_REASON:
        # Logs end with the error that matters.
        text = f"… {text[-LONGEST_REASON:]}"
    return f"failed with {type(error).__name__}: {text}"


def _broken(executor: Executor, error: Exception) -> PluribusError:
    return PluribusError(
        f"the executor must accept jobs until all are done, got {type(error).__name__} from "
        f"{type(executor).__name__}: {error}. Finished runs are kept: run it again with a new executor, or "
        "with workers=, which replaces killed workers."
    )
