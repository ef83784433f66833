"""Lock: a part of an ensemble that copies and pickles do not share."""

import copy
import pickle
import threading

import pytest

from pluribus.mechanisms.running.lock import Lock


def is_free(lock: Lock) -> bool:
    """Return whether another thread could take it."""
    found = []

    def attempt() -> None:
        found.append(lock._lock.acquire(blocking=False))
        if found[0]:
            lock._lock.release()

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return found[0]


def test_a_held_lock_keeps_other_threads_out():
    lock = Lock()
    with lock, lock:
        assert not is_free(lock)
    assert is_free(lock)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda lock: pickle.loads(pickle.dumps(lock))])
def test_a_copy_of_a_held_lock_is_free(copied):
    lock = Lock()
    with lock:
        assert is_free(copied(lock))
