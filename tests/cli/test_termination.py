"""SIGTERM inside the block interrupts; outside, it means what it meant before."""

import signal
import sys
import threading
import time

import pytest

from pluribus.cli.termination import SOON, Terminated, exit_code, interrupts_return, sigterm_interrupts


def test_sigterm_interrupts_inside_the_block_alone():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated) as caught, sigterm_interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
    assert exit_code(caught.value) == 143
    assert exit_code(KeyboardInterrupt()) == 130


def test_a_thread_that_cannot_handle_signals_runs_the_block():
    ran = []

    def block():
        with sigterm_interrupts():
            ran.append(True)

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert ran == [True]


class Removed:
    """Raises when it is removed, where Python drops what is raised."""

    def __init__(self, error):
        self.error = error

    def __del__(self):
        raise self.error


def drop_and_wait(interrupt):
    Removed(interrupt)
    # The interrupt that comes again ends it.
    time.sleep(60)


@pytest.fixture
def ctrl_c():
    """Let Ctrl-C interrupt: shells start commands in the background with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, Terminated])
def test_an_interrupt_that_python_drops_comes_again(interrupt, ctrl_c):
    with pytest.raises(KeyboardInterrupt) as caught, interrupts_return(), sigterm_interrupts():
        drop_and_wait(interrupt())
    assert caught.type is interrupt


def test_other_errors_are_dropped_as_before(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    with interrupts_return():
        Removed(ValueError())
    assert [one.exc_type for one in seen] == [ValueError]
    assert sys.unraisablehook == seen.append


def test_an_interrupt_does_not_come_after_the_command():
    with interrupts_return():
        Removed(KeyboardInterrupt())
    time.sleep(4 * SOON)
