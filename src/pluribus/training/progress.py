"""Progress on the terminal, with the time left; nothing where there is no terminal or no rich."""

import importlib.util
from collections.abc import Mapping
from typing import Any, Self


class Show:
    """A progress bar that is left in place when it is done.

    Args:
        title: What is going on.
        total: How many steps there are.
        on: Whether to show anything.
        done: How many steps were done before.
    """

    def __init__(self, title: str, total: int, on: bool = True, done: int = 0) -> None:
        self.title, self.total, self.done = title, total, done
        self.bar: Any = None
        self.on = on and importlib.util.find_spec("rich") is not None

    def __enter__(self) -> Self:
        if self.on:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[told]}"),
            )
            self.bar = Progress(*columns)
            self.bar.start()
            self.task = self.bar.add_task(self.title, total=self.total, completed=self.done, told="")
        return self

    def __exit__(self, *problem: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self) -> None:
        """One step more is done."""
        if self.bar is not None:
            self.bar.advance(self.task)

    def tell(self, numbers: Mapping[str, float]) -> None:
        """Shows some numbers beside the bar."""
        if self.bar is not None:
            told = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
            self.bar.update(self.task, told=told)

    def say(self, line: str) -> None:
        """Prints a line above the bar."""
        if self.bar is not None:
            self.bar.console.print(line, highlight=False, markup=False)
