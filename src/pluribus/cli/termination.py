"""Handle SIGTERM like Ctrl-C, so that a command that is told to end removes its temporary files."""

import contextlib
import signal
import threading
from collections.abc import Iterator


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
