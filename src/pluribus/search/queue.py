"""Queue of trials: exactly as many as wanted are taken, each by one worker, and lost ones are queued again.

    WAITING   in the queue
    RUNNING   taken by a worker, which holds a lease: a locked file that the system frees when the worker dies
    COMPLETE  measured
    PRUNED    stopped early (it counts), or never trained: too expensive, repeated, impossible (it does not)
    FAIL      with an error (it does not count), or lost with its worker: it is queued again

All changes of the queue happen under the lock of the study. Every step can be repeated, so that a worker may
be killed between any two of them.
"""

import contextlib
import copy
import os
import socket
import uuid
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import optuna
from optuna.storages import RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from pluribus.comparison.locking import held, locked
from pluribus.search.storage import Storage

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

WORKER, KEY, HALVED, SKIPPED, ERROR = "worker", "key", "halved", "skipped", "error"
"""User attributes of a trial."""
RETRIES = 3
"""How often a trial that was lost with its worker is run again."""
OPEN_STATES = (TrialState.WAITING, TrialState.RUNNING)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Ignore warnings that parts of Optuna are experimental; they are tested here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


class QueueEmpty(Exception):
    """Raised inside of `study.optimize` when no trial is left to take."""


def counts(trial: FrozenTrial) -> bool:
    """Return whether a trial is one of those that were wanted."""
    if trial.state == TrialState.PRUNED:
        return HALVED in trial.user_attrs
    return trial.state in (TrialState.COMPLETE, *OPEN_STATES)


def _is_original(trial: FrozenTrial) -> bool:
    """Return whether a trial was queued, and not in place of a lost one."""
    return "fixed_params" in trial.system_attrs and "failed_trial" not in trial.system_attrs


@final
class Queue(optuna.Study):
    """A study of which trials are taken from its queue alone.

    Args:
        name: Of the study.
        storage: Where it is.
        opened: The connection.
        sampler: Draws parameters.
        folder: For the leases of workers on this machine.
    """

    def __init__(
        self,
        name: str,
        storage: Storage,
        opened: "RDBStorage",
        sampler: optuna.samplers.BaseSampler,
        folder: Path,
    ) -> None:
        super().__init__(name, opened, sampler)
        self.place, self.opened = storage, opened
        # Other processes look at the lease, and may have been started elsewhere.
        self.folder = Path(os.path.realpath(folder / "workers"))
        self.lease = self.folder / f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"

    def __reduce__(self) -> Any:
        raise TypeError("a queue belongs to one process")

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Hold the lease of this worker for the block."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.lease, lambda: None):
            yield

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the study for the block."""
        with self.place.locked(self.opened, self.study_name):
            yield

    def ask(self, fixed_distributions: Any = None) -> Trial:
        """Take a trial from the queue, and mark it as this worker's.

        Raises:
            QueueEmpty: there is none.
        """
        with self.locked():
            # Without a waiting trial Optuna would make a new one, and there would be more than wanted.
            if not self.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
                raise QueueEmpty
            trial = super().ask(fixed_distributions)
            trial.set_user_attr(WORKER, {"host": socket.gethostname(), "lease": str(self.lease)})
        return trial

    def fill(self, wanted: int, first: Sequence[dict[str, Any]] = ()) -> None:
        """Queue lost trials again, and new ones until there are as many as wanted.

        Args:
            wanted: How many trials the study shall have.
            first: Parameters of the first trials; the sampler draws those of the others.
        """
        with self.locked():
            self._fail_lost()
            self._retry_lost()
            trials = self.get_trials(deepcopy=False)
            missing = wanted - sum(map(counts, trials))
            # The first ones may be finished or lost meanwhile, and must not be queued a second time.
            queued = sum(map(_is_original, trials))
            for number in range(missing):
                place = queued + number
                self.enqueue_trial(first[place] if place < len(first) else {})

    def put(self, parameters: dict[str, Any]) -> None:
        """Queue a trial with given parameters."""
        with self.locked():
            self.enqueue_trial(parameters)

    def _fail_lost(self) -> None:
        """Mark running trials as failed whose worker is dead."""
        with quiet():
            # Workers of other machines are known by their heartbeats alone.
            fail_stale_trials(self)
        for trial in self.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if self._is_lost(trial):
                self.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)

    def _is_lost(self, trial: FrozenTrial) -> bool:
        """Return whether the worker of a running trial is dead; False if it is on another machine."""
        worker = trial.user_attrs.get(WORKER)
        # Workers mark a trial before they release the lock: an unmarked one was taken by one that was killed.
        if worker is None:
            return True
        if worker["host"] != socket.gethostname():
            return False
        return not held(Path(worker["lease"]))

    def _retry_lost(self) -> None:
        """Queue trials again that were lost with their workers, and are not queued yet."""
        trials = self.get_trials(deepcopy=False)
        again: set[int] = set()
        with quiet():
            for trial in trials:
                again.update(RetryHeartbeatStaleTrialCallback.retry_history(trial))
            retry = RetryHeartbeatStaleTrialCallback(max_retry=RETRIES)
        for trial in trials:
            lost = trial.state == TrialState.FAIL and ERROR not in trial.user_attrs
            if lost and trial.number not in again:
                # The callback appends to a list of the trial, which is Optuna's own.
                retry(self, copy.deepcopy(trial))

    def close(self) -> None:
        """Close all connections to the database."""
        self.opened.remove_session()
        self.opened.engine.dispose()

    @property
    def is_waiting(self) -> bool:
        """Return whether trials are left to take."""
        return bool(self.get_trials(deepcopy=False, states=(TrialState.WAITING,)))

    @property
    def others(self) -> int:
        """Return how many trials are running."""
        return len(self.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))
