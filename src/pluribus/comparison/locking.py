"""A lock between processes: a file that the system unlocks when its holder ends, even if killed."""

import contextlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# Polled instead of awaited inside the system call, which would delay the handling of signals.
POLL_SECONDS = 0.1


@contextlib.contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a lock for the block; the file is removed at its end.

    Args:
        path: The lock's file.
        on_wait: Callback, called once if another process holds the lock.
    """
    # Windows has no fcntl: two commands on one folder are the user's risk there.
    if importlib.util.find_spec("fcntl") is None:
        yield
        return
    descriptor = _try(path)
    if descriptor is None:
        on_wait()
    while descriptor is None:
        time.sleep(POLL_SECONDS)
        descriptor = _try(path)
    try:
        yield
    finally:
        # Removed while it is held: whoever opened this file before sees that it is gone and opens a new one.
        path.unlink(missing_ok=True)
        os.close(descriptor)


def held(path: Path) -> bool:
    """Return whether a process of this machine holds the lock of a file."""
    if importlib.util.find_spec("fcntl") is None or not path.exists():
        return path.exists()
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _try(path: Path) -> int | None:
    """Return a descriptor of the locked file, or None if another process holds it."""
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_at(path, descriptor):
            return descriptor
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the path still names the opened file, which its last holder may have removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
