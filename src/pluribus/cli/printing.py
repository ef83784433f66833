"""Print lines on the terminal: results on stdout, all else on stderr."""

import io
import sys

from rich.console import Console

console = Console()
stderr = Console(stderr=True)


def never_fail_on_characters() -> None:
    """Let the terminal show characters that it cannot print as escapes.

    Names of files may hold bytes that are no text, and terminals may know no `±`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def say(line: str, style: str = "yellow") -> None:
    """Print a line on stderr, so that stdout holds results alone."""
    stderr.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def counted(count: int, word: str) -> str:
    """Return a count with its word: `1 epoch`, `2 epochs`."""
    plural = "" if count == 1 else "s"
    return f"{count} {word}{plural}"
