"""Show the progress of a comparison: all runs with the time left, and a line for every running one.

On a terminal, with rich, it looks like this. Elsewhere it prints a line for every finished run, and one every
half minute.

    comparing ━━━━━━━━━━━━━━━━━━━━━━━━━━   2 of 6 runs  0:00:41, 0:01:12 left
      deep_ensembles seed 0   epoch 12 of 30, loss 0.1234
      batch_ensemble seed 0   measuring
"""

import importlib.util
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

logger = logging.getLogger("pluribus")

# Measuring follows training and sends no notes. With corruptions it takes the rest of a run, about.
SHARE_OF_TRAINING = 0.6
SECONDS_BETWEEN_LINES = 30.0
FEWEST_DONE = 0.1
"""Runs that must be done before the time left is estimated: after one epoch of a busy worker it was a day."""


@dataclass(frozen=True)
class Stage:
    """Stage of a run that is not finished.

    Attributes:
        text: Its current work, in a few words.
        share: The part of the run that is done, in [0, 1].
    """

    text: str
    share: float


def trained(epoch: int, epochs: int, loss: float) -> Stage:
    """Return the stage of a run after an epoch of training."""
    text = "measuring" if epoch == epochs else f"epoch {epoch} of {epochs}, loss {loss:.4g}"
    return Stage(text, SHARE_OF_TRAINING * epoch / epochs)


class Display:
    """Display of the progress of a comparison. Use it as a context manager.

    Args:
        total: Number of runs.
        done: Number of runs that were finished before.
        on: Show anything at all.
        clock: Returns the time in seconds.
        verb: What is done with the runs.
    """

    def __init__(
        self,
        total: int,
        done: int = 0,
        on: bool = True,
        clock: Callable[[], float] = time.monotonic,
        verb: str = "comparing",
    ) -> None:
        self.total, self.before, self.on, self.clock, self.verb = total, done, on, clock, verb
        self.finished = 0
        self.running: dict[str, Stage] = {}
        self.began = self.last_line = clock()
        self.live: Any = None

    def __enter__(self) -> Self:
        before = f", {self.before} finished before" if self.before else ""
        self.say(f"{self.verb}: {self.total} runs{before}")
        if self.on and sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
            from rich.live import Live

            # Rendered four times a second, so that the time advances between notes.
            self.live = Live(get_renderable=self.render, refresh_per_second=4, redirect_stderr=False)
            self.live.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self.live is not None:
            self.running.clear()
            self.live.stop()

    def note(self, title: str, note: str | Stage) -> None:
        """Print a line about a run, or update its stage."""
        if isinstance(note, str):
            self.say(f"{title}: {note}")
            return
        self.running[title] = note
        if self.live is None and self.clock() - self.last_line > SECONDS_BETWEEN_LINES:
            self.say(f"{title}: {note.text}; {self.times()}")

    def finish(self, title: str, outcome: str) -> None:
        """Count a run that ended, and print its outcome."""
        self.running.pop(title, None)
        self.finished += 1
        line = f"{title}: {outcome}"
        # The bar of a terminal shows the time already.
        if self.live is None and self.runs_left():
            line += f"; {self.times()}"
        self.say(line)

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        self.last_line = self.clock()
        logger.info(line)
        if not self.on:
            return
        if self.live is not None:
            self.live.console.print(line, highlight=False, markup=False, soft_wrap=True)
        else:
            print(line, flush=True)

    def runs_left(self) -> float:
        """Return the number of runs that are left; a running one counts by the share that is left."""
        part_done = sum(stage.share for stage in self.running.values())
        return self.total - self.before - self.finished - part_done

    def times(self) -> str:
        """Return the time that passed, and the time left at the speed so far."""
        passed = self.clock() - self.began
        done = self.total - self.before - self.runs_left()
        text = str(timedelta(seconds=int(passed)))
        if done < FEWEST_DONE or self.runs_left() <= 0:
            return text
        left = passed / done * self.runs_left()
        return f"{text}, {timedelta(seconds=int(left))} left"

    def render(self) -> Any:
        """Return a rich renderable: a bar, and one line for each running run."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        whole = Table.grid(padding=(0, 1))
        bar = ProgressBar(self.total, self.total - self.runs_left(), width=24)
        ended = f"{self.before + self.finished} of {self.total} runs"
        whole.add_row(self.verb, bar, ended, self.times())
        lines = Table.grid(padding=(0, 2))
        for title, stage in self.running.items():
            lines.add_row(Text(f"  {title}"), Text(stage.text))
        return Group(whole, lines)
