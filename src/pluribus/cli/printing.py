"""Lines for the terminal: results on stdout, all else on stderr."""

from rich.console import Console

console = Console()
stderr = Console(stderr=True)


def say(line: str, style: str = "yellow") -> None:
    """A line on stderr, not in the way of what is read from stdout."""
    stderr.print(line, style=style, highlight=False, markup=False, soft_wrap=True)


def counted(count: int, word: str) -> str:
    """`1 epoch`, `2 epochs`."""
    return f"{count} {word}{'' if count == 1 else 's'}"
