"""Show the progress of a training with the time left; needs rich."""

import importlib.util
import time
from typing import Any, Self

SECONDS_BETWEEN_LINES = 30.0


class Show:
    """Progress bar that stays on the screen when it is done. Use it as a context manager.

    Args:
        title: Its text.
        total: Number of steps.
        on: Show anything at all.
        done: Number of steps that were done before.
    """

    def __init__(self, title: str, total: int, on: bool = True, done: int = 0) -> None:
        self.title, self.total, self.done = title, total, done
        self.bar: Any = None
        self.last_line = time.monotonic()
        self.on = on and importlib.util.find_spec("rich") is not None

    def __enter__(self) -> Self:
        if self.on:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            # Narrow enough for a terminal of 80 characters.
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=16),
                TextColumn("{task.percentage:>3.0f} %"),
                TimeRemainingColumn(),
                TextColumn("left  {task.fields[told]}"),
            )
            self.bar = Progress(*columns)
            self.bar.start()
            self.task = self.bar.add_task(self.title, total=self.total, completed=self.done, told="")
        return self

    def __exit__(self, *problem: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def advance(self) -> None:
        """Count one step."""
        if self.bar is not None:
            self.bar.advance(self.task)

    def tell(self, told: str) -> None:
        """Show a few words beside the bar; without a terminal, print them every half minute."""
        if self.bar is None:
            return
        self.bar.update(self.task, told=told)
        now = time.monotonic()
        if not self.bar.console.is_terminal and now - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = now
            self.say(f"{self.title}: {told}")

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        if self.bar is not None:
            self.bar.console.print(line, highlight=False, markup=False)
