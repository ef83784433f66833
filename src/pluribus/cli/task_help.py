"""`pluribus tasks`: what tasks there are, and the options of each with their meaning."""

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pluribus.data import TASKS, Sizes
from pluribus.errors import SettingError
from pluribus.ranges import nearest

# A line of the section `Args` or `Attributes` of a docstring: four spaces, a name, its meaning.
ENTRY = re.compile(r"    (\*{0,2}\w+): (.*)")
# Options that the command line sets by itself, or that stand for the sizes.
HIDDEN = ("data_dir", "sizes", "name")
MOST_DEFAULT = 24
"""Characters of a default that are shown."""


@dataclass(frozen=True)
class Option:
    """An option of a task: its name, its default as text (empty where it is required), and its meaning."""

    name: str
    default: str
    meaning: str
    required: bool


def summary(name: str) -> str:
    """Return the first sentence about a task."""
    text = inspect.getdoc(_function(TASKS[name])) or ""
    return text.splitlines()[0] if text else ""


def task_options(name: str) -> list[Option]:
    """Return the options of a task: its own, then the sizes of its parts.

    Raises:
        SettingError: there is no such task.
    """
    if name not in TASKS:
        raise SettingError(f"tasks are {', '.join(TASKS)}, got {name!r}.{nearest(name, TASKS)}")
    task = TASKS[name]
    meanings = dict(_entries(inspect.getdoc(_function(task)) or ""))
    options = []
    for parameter in inspect.signature(task).parameters.values():
        if parameter.name in HIDDEN:
            continue
        required = parameter.default is parameter.empty
        default = "" if required else _shown(parameter.default)
        options.append(Option(parameter.name, default, meanings.get(parameter.name, ""), required))
    sizes = dict(_entries(inspect.getdoc(Sizes) or ""))
    return options + [Option(size, "", sizes.get(size, ""), False) for size in Sizes.__annotations__]


def _function(task: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind a task; several data sets share one, with their name filled in."""
    return task.func if isinstance(task, functools.partial) else task


def _shown(default: Any) -> str:
    text = str(default)
    return text if len(text) <= MOST_DEFAULT else f"{text[:MOST_DEFAULT]}…"


def _entries(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield the names and meanings that a docstring lists; lines that continue a meaning are joined."""
    name, words = "", ""
    for line in docstring.splitlines():
        found = ENTRY.match(line)
        if found:
            if name:
                yield name, words
            name, words = found[1], found[2]
        elif name and line.startswith("        "):
            words += f" {line.strip()}"
        elif name:
            yield name, words
            name, words = "", ""
    if name:
        yield name, words
