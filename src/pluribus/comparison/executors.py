"""Executors by name: where the runs of a comparison are computed.

    local                               processes of this machine, as many as `workers`
    dask://host:port                    the workers of a Dask scheduler that runs there
    slurm://?slurm_partition=gpu        jobs of SLURM, with parameters of submitit
    slurm://local                       the same jobs on this machine, to try it

Any other `concurrent.futures.Executor` is passed as an object.
"""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pluribus.comparison.slurm import SlurmExecutor
from pluribus.errors import SettingError
from pluribus.ranges import show

LOCAL = "local"
CONNECT_SECONDS = 30
JOBS = "jobs"
"""Folder below that of a comparison for the files of SLURM jobs."""


def check_executor(executor: Any) -> None:
    """Raise `SettingError` unless this is an executor, the name of one, or None."""
    if executor is None or executor == LOCAL or isinstance(executor, Executor):
        return
    if isinstance(executor, str) and urlsplit(executor).scheme in ("dask", "slurm"):
        return
    raise SettingError(
        "executor must be local, dask://host:port, slurm://?parameter=value or a "
        f"concurrent.futures.Executor, got {show(executor)}."
    )


@contextlib.contextmanager
def opened(executor: Executor | str, out: Path) -> Iterator[Executor]:
    """Yield an executor. One that was made from its name is closed at the end of the block.

    Args:
        executor: An executor, which stays open, or a name.
        out: The folder of the comparison.

    Raises:
        SettingError: the name is unknown, its package is missing, or nobody answers at the address.
    """
    check_executor(executor)
    if isinstance(executor, Executor):
        yield executor
        return
    parts = urlsplit(executor)
    if parts.scheme == "dask":
        with _dask(parts.netloc) as made:
            yield made
        return
    parameters = {name: _number(value) for name, value in parse_qsl(parts.query)}
    slurm = SlurmExecutor(out / JOBS, parts.netloc or None, **parameters)
    try:
        yield slurm
    finally:
        slurm.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """Yield an executor on the workers of a Dask scheduler."""
    try:
        # Not by an import statement: its functions have no types.
        distributed: Any = importlib.import_module("distributed")
    except ImportError as error:
        raise SettingError(
            "jobs of Dask need the package distributed, but it is not installed. "
            "Install pluribus with the extra dask."
        ) from error
    try:
        client = distributed.Client(f"tcp://{address}", timeout=CONNECT_SECONDS)
    # Wrong addresses are OSError, ValueError or TimeoutError.
    except Exception as error:
        raise SettingError(
            f"executor must be the address of a Dask scheduler that runs, got {address!r}: {error}. "
            "Start one with `dask scheduler`."
        ) from error
    with client:
        # Not pure: equal calls are not merged, and a run that is repeated is computed again.
        yield client.get_executor(pure=False)


def _number(value: str) -> str | int:
    return int(value) if value.isdecimal() else value


def is_cancelled() -> bool:
    """Return whether the Dask task that runs this code was cancelled; False outside of Dask.

    Dask does not stop the thread of a task that is cancelled, so the task has to end by itself.
    """
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        worker = distributed.get_worker()
        key = worker.get_current_task()
    # Not inside of a task.
    except (ValueError, AttributeError):
        return False
    task = worker.state.tasks.get(key)
    return task is None or task.state == "cancelled"
