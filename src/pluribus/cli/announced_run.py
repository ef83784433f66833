"""Find the run to take, and print the choice where a comparison or a search made it."""

from pathlib import Path

from pluribus.cli.printing import say
from pluribus.runs.chosen_run import chosen_run


def announced_run(folder: Path) -> Path:
    """Return the folder of the run to take; print the choice where a comparison or a search made it."""
    run, choice = chosen_run(folder)
    if choice:
        say(choice, "none")
    return run
