"""SIGTERM inside the block interrupts; outside, it means what it meant before."""

import signal
import threading

import pytest

from pluribus.cli.termination import Terminated, exit_code, sigterm_interrupts


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
