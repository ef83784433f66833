"""Handle SIGTERM like Ctrl-C, so that a command that is told to end removes its temporary files.

Neither is lost: Python drops whatever is raised while a weak reference or an object is removed, Ctrl-C too,
and PyTorch removes so many that of a hundred Ctrl-C some came to nothing.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

SOON = 0.05
"""Seconds after which a lost interrupt comes again: the callback that dropped it has ended."""


class Terminated(KeyboardInterrupt):
    """Raised in the main thread when SIGTERM arrives."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return the exit code that shells expect after an interrupt: 128 plus the number of the signal."""
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM inside the block."""
    # Python lets only the main thread handle signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _raise(number: int, frame: object) -> None:
    raise Terminated


@contextlib.contextmanager
def interrupts_return() -> Iterator[None]:
    """Send an interrupt again that was dropped inside the block, until it is raised."""
    before, timers = sys.unraisablehook, list[threading.Timer]()

    def hook(dropped: "UnraisableHookArgs") -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            before(dropped)
            return
        number = signal.SIGTERM if issubclass(dropped.exc_type, Terminated) else signal.SIGINT
        timers.append(threading.Timer(SOON, os.kill, (os.getpid(), number)))
        timers[-1].daemon = True
        timers[-1].start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
        for timer in timers:
            timer.cancel()
