"""SLURM: jobs of a cluster as a `concurrent.futures.Executor`, by submitit.

submitit writes a job to a folder that all nodes see, submits it with `sbatch`, and reads the result from that
folder. Its executor returns jobs of its own. Here a thread watches these and fulfils ordinary futures.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, final

from pluribus.errors import SettingError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

POLL_SECONDS = 0.5
# submitit's own default of 5 minutes would end most trainings.
TIMEOUT_MINUTES = 24 * 60


@final
class SlurmExecutor(Executor):
    """Run calls as jobs of SLURM.

    Args:
        folder: For the files of the jobs; all nodes must see it.
        cluster: `slurm`, `local` to try it on this machine, or None for what submitit finds.
        **parameters: Of `submitit.AutoExecutor.update_parameters`: `slurm_partition`, `timeout_min`,
            `gpus_per_node`, `cpus_per_task`, `mem_gb`.

    Raises:
        SettingError: submitit is not installed, there is no such cluster, or a parameter is unknown.
    """

    def __init__(self, folder: str | Path, cluster: str | None = None, **parameters: Any) -> None:
        try:
            import submitit
        except ImportError as error:
            raise SettingError(
                "jobs of SLURM need the package submitit, but it is not installed. "
                "Install pluribus with the extra slurm."
            ) from error
        try:
            self.submitit = submitit.AutoExecutor(folder, cluster=cluster)
            self.submitit.update_parameters(**{"timeout_min": TIMEOUT_MINUTES} | parameters)
        # submitit raises errors without a common parent for clusters and parameters that it lacks.
        except Exception as error:
            raise SettingError(
                f"cluster and parameters must be what submitit offers on this machine, got {error}."
            ) from error
        self.jobs: dict[Future[Any], Any] = {}
        self.lock = threading.Lock()
        self.watcher: threading.Thread | None = None
        self.closed = False

    def submit(
        self, fn: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> "Future[Result]":
        """Submit a call as one job, and return its future."""
        if self.closed:
            raise RuntimeError("cannot submit jobs after shutdown")
        job = self.submitit.submit(fn, *args, **kwargs)
        future: Future[Result] = Future()
        with self.lock:
            self.jobs[future] = job
            if self.watcher is None:
                self.watcher = threading.Thread(target=self._watch, name="pluribus-slurm", daemon=True)
                self.watcher.start()
        # A future that never says that it runs can be cancelled at any time, as a job of SLURM can.
        future.add_done_callback(self._cancel_job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accept no further jobs; cancel those that are not finished, or wait for them."""
        self.closed = True
        if cancel_futures:
            for future in list(self.jobs):
                future.cancel()
        watcher = self.watcher
        if wait and watcher is not None:
            watcher.join()

    def _cancel_job(self, future: "Future[Any]") -> None:
        with self.lock:
            job = self.jobs.pop(future, None)
        if job is not None and future.cancelled():
            # Wakes up whoever waits for the future.
            future.set_running_or_notify_cancel()
            job.cancel(check=False)

    def _watch(self) -> None:
        """Fulfil the futures of finished jobs until there is none left."""
        while True:
            for future, job in list(self.jobs.items()):
                if job.done():
                    _fulfil(future, job)
            with self.lock:
                if not self.jobs:
                    self.watcher = None
                    return
            time.sleep(POLL_SECONDS)


def _fulfil(future: "Future[Any]", job: Any) -> None:
    """Give a future the result of its finished job, or its exception."""
    # The future may be cancelled in the meantime.
    with suppress(InvalidStateError):
        try:
            result = job.result()
        # A job that was killed, one that raised and a result that cannot be read raise different errors.
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)
