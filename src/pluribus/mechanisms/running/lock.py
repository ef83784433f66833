"""A lock that can be a part of a module: copies and pickles get a new one."""

import threading
from typing import Any


class Lock:
    """A re-entrant lock.

    Train mode writes running statistics, so that two forward passes must not overlap. A copy of an
    ensemble has statistics of its own and so a lock of its own, free even while the first one is held.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Lock":
        return Lock()

    def __reduce__(self) -> tuple[type["Lock"], tuple[()]]:
        return Lock, ()
