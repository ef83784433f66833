"""Worker processes that run jobs side by side. A killed worker is replaced; workers end with their parent.

    parent                            worker
    start the process --------------> import, then send "ready"
    send all jobs, pickled once ----> unpickle
    send the number of a job -------> run it
            <------------------------ "note", any number of times
            <------------------------ "done" with the result, or "raised"
    send the next number, or close the connection, which ends the worker

A process pool of the standard library breaks for all jobs when one worker is killed, and leaves its workers
running when the parent is killed.
"""

import _thread
import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Self, TypeVar

from pluribus.errors import PluribusError, SettingError

Job = TypeVar("Job")
Result = TypeVar("Result")
Report = Callable[[Any], None]
"""Callback by which a running job sends a value to the parent."""

ATTEMPTS = 2
"""Workers a job may lose before it counts as failed."""
# Long enough for a worker to remove a half-written file, short enough for somebody who pressed Ctrl-C.
GRACE_SECONDS = 3.0
# A lost worker closes its connection at once, unless a process that it forked still holds a copy.
POLL_SECONDS = 1.0

# Spawned workers inherit no threads, no locks and no CUDA context, and exist on every platform.
_CONTEXT = multiprocessing.get_context("spawn")


def silent(note: Any) -> None:
    """Ignore a note."""


@dataclass(frozen=True)
class Lost:
    """Result of a job whose workers were all killed.

    Attributes:
        reason: How the last of them ended.
    """

    reason: str


@dataclass(eq=False)
class _Worker:
    """The parent's side of one worker process."""

    process: Any
    connection: "Connection[Any, Any]"
    job: int
    number: int
    ready: bool = False

    @classmethod
    def start(cls, job: int, number: int, prepare: Callable[[int], None]) -> Self:
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(theirs, prepare, number))
        with _interrupts_blocked():
            process.start()
        # With a second copy open here, the worker's death would not end the connection.
        theirs.close()
        return cls(process, ours, job, number)

    def send(self, value: Any) -> None:
        self.connection.send_bytes(pickle.dumps(value))

    def how_it_ended(self) -> str:
        self.process.join(GRACE_SECONDS)
        code = self.process.exitcode
        if code is None:
            return "stopped answering"
        return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def end(self) -> None:
        """Wait for a worker that has nothing left to do."""
        self.connection.close()
        self.process.join(GRACE_SECONDS)
        self.kill()

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


class Workers(Generic[Job, Result]):
    """Run `function(job, report)` for every job in worker processes, each with one torch thread.

    Use it as a context manager: leaving the block stops all workers within seconds, whatever the reason.

    Args:
        function: A function at the top of a module.
        jobs: Arguments; they must be picklable.
        count: How many processes, at least 1.
        on_note: Callback `(job, note)` for every value that a job reports.
        on_retry: Callback `(job, reason)`; a job whose worker was killed is about to run again.
        prepare: Called in each worker before its first job, with the number of the worker from 0. A worker
            that replaces a killed one has its number.
    """

    def __init__(
        self,
        function: Callable[[Job, Report], Result],
        jobs: Sequence[Job],
        count: int,
        on_note: Callable[[Job, Any], None],
        on_retry: Callable[[Job, str], None],
        prepare: Callable[[int], None] = silent,
    ) -> None:
        self.jobs, self.count, self.prepare = jobs, count, prepare
        self.on_note, self.on_retry = on_note, on_retry
        # Plain pickle copies tensors. torch's own pickler for processes would put them into shared memory,
        # which small containers lack, and leave sockets in the temporary folder after a kill.
        self.content = _pickled((function, list(jobs)))
        self.waiting = deque(range(len(jobs)))
        self.killed = [0] * len(jobs)
        self.workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        """Stop all workers: politely first, so that they remove their temporary files."""
        for worker in self.workers:
            worker.process.terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self.workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
        for worker in self.workers:
            worker.kill()
            worker.connection.close()
        self.workers.clear()

    def results(self) -> Iterator[tuple[Job, Result | Lost]]:
        """Yield each job with its result, in the order in which they finish.

        Raises:
            PluribusError: A worker could not start, or the function raised.
        """
        for number in range(min(self.count, len(self.jobs))):
            self._start(number)
        while self.workers:
            heard = wait([worker.connection for worker in self.workers], POLL_SECONDS)
            for worker in list(self.workers):
                if worker.connection in heard:
                    yield from self._receive(worker)
                elif not worker.process.is_alive() and not worker.connection.poll():
                    yield from self._replace(worker)

    def _start(self, number: int) -> None:
        self.workers.append(_Worker.start(self.waiting.popleft(), number, self.prepare))

    def _receive(self, worker: _Worker) -> Iterator[tuple[Job, Result | Lost]]:
        """Handle one message of a worker."""
        try:
            kind, value = pickle.loads(worker.connection.recv_bytes())
            if kind == "ready":
                worker.ready = True
                worker.connection.send_bytes(self.content)
                worker.send(worker.job)
        except (EOFError, OSError):
            yield from self._replace(worker)
            return
        if kind == "note":
            self.on_note(self.jobs[worker.job], value)
        elif kind == "raised":
            raise _error_of_worker(*value)
        elif kind == "done":
            yield self.jobs[worker.job], value
            self._continue(worker)

    def _continue(self, worker: _Worker) -> None:
        """Give the next job to a worker that finished one, or end it."""
        if not self.waiting:
            self.workers.remove(worker)
            worker.end()
            return
        worker.job = self.waiting.popleft()
        # If the worker is gone, its closed connection is noticed by the next wait.
        with contextlib.suppress(OSError):
            worker.send(worker.job)

    def _replace(self, worker: _Worker) -> Iterator[tuple[Job, Result | Lost]]:
        """Run the job of a lost worker again in a new one, or give it up."""
        reason = worker.how_it_ended()
        self.workers.remove(worker)
        worker.kill()
        worker.connection.close()
        if not worker.ready and (worker.process.exitcode or 0) > 0:
            raise PluribusError(
                f"worker processes must be able to import the main script, got {reason} at their start. "
                'Call compare under `if __name__ == "__main__":`, or use workers=1.'
            )
        number = worker.job
        self.killed[number] += 1
        if self.killed[number] < ATTEMPTS:
            self.on_retry(self.jobs[number], reason)
            self.waiting.appendleft(number)
        else:
            yield self.jobs[number], Lost(reason)
        if self.waiting:
            self._start(worker.number)


def _pickled(content: Any) -> bytes:
    try:
        return pickle.dumps(content)
    except Exception as error:
        raise SettingError(
            f"several workers need a network and a task that can be pickled, got {error}. "
            "Define them at the top of a module, or use workers=1."
        ) from error


def _error_of_worker(line: str, trace: str) -> PluribusError:
    """Return an error with the worker's own traceback as a note, since tracebacks cannot be pickled."""
    error = PluribusError(line)
    error.add_note(trace)
    return error


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Hold back Ctrl-C while a worker starts.

    The worker inherits the mask, so that Ctrl-C, which a terminal sends to all processes, does not end it
    with a traceback while it imports. The parent receives the held-back signal at the end of the block.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    # Started later, inside `Process.start`, it would unblock Ctrl-C.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: "Connection[Any, Any]", prepare: Callable[[int], None], worker: int) -> None:
    """Run jobs until the connection closes: the main function of a worker."""
    _prepare_signals()
    prepare(worker)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    import torch

    torch.set_num_threads(1)
    with contextlib.suppress(EOFError, OSError):
        connection.send_bytes(pickle.dumps(("ready", None)))
        function, jobs = pickle.loads(connection.recv_bytes())
        while True:
            number = pickle.loads(connection.recv_bytes())
            message = _run(function, jobs[number], connection)
            connection.send_bytes(pickle.dumps(message))


def _run(function: Callable[..., Any], job: Any, connection: "Connection[Any, Any]") -> tuple[str, Any]:
    """Run one job and return the message about its end."""

    def report(note: Any) -> None:
        try:
            connection.send_bytes(pickle.dumps(("note", note)))
        except OSError:
            # The parent is gone. No `except Exception` of the job may record this as its failure.
            raise SystemExit(1) from None

    try:
        return "done", function(job, report)
    except PluribusError as error:
        return "raised", (str(error), traceback.format_exc())
    except Exception as error:
        return "raised", (f"{type(error).__name__}: {error}", traceback.format_exc())


def _prepare_signals() -> None:
    """Leave Ctrl-C to the parent, and turn SIGTERM into an exit that runs `finally` blocks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def _exit(number: int, frame: object) -> None:
    # A second SIGTERM must not interrupt the cleaning up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _end_with_parent() -> None:
    """Wait until the parent is gone, even if killed, and then end this process."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    if hasattr(signal, "pthread_kill"):
        # A real signal also ends a blocking system call of the main thread.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    else:
        _thread.interrupt_main(signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os._exit(1)
