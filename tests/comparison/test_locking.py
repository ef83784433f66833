"""Locks between processes: one holder, waiting is announced, and nothing is left behind."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pluribus.comparison.locking import locked

pytest.importorskip("fcntl")


def test_a_lock_that_is_free_is_taken_without_waiting_and_removed(tmp_path):
    with locked(tmp_path / "lock", lambda: pytest.fail("waited")):
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()


def test_waiting_is_announced_once_and_ends_with_the_release(tmp_path):
    announced, order = threading.Event(), []

    def second():
        with locked(tmp_path / "lock", lambda: (order.append("waiting"), announced.set())):
            order.append("second")

    with locked(tmp_path / "lock", lambda: None):
        thread = threading.Thread(target=second)
        thread.start()
        assert announced.wait(60)
        order.append("first")
    thread.join(60)
    assert order == ["waiting", "first", "second"]
    assert not (tmp_path / "lock").exists()


def test_a_lock_that_is_removed_on_release_admits_one_at_a_time(tmp_path):
    inside, most = [], []

    def enter(number):
        for _ in range(20):
            with locked(tmp_path / "lock", lambda: None):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(enter, range(4)))
    assert len(most) == 80
    assert max(most) == 1
