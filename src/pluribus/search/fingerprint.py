"""Fingerprint of a study: workers with another space, task or version are refused.

The parts are stored with the study, so that the message names the one that differs.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pluribus.errors import SettingError
from pluribus.search.candidate import Problem
from pluribus.search.objectives import Objective
from pluribus.search.space import Space
from pluribus.version import VERSION

ATTRIBUTE = "pluribus"
"""User attribute of the study in which the parts are stored."""


def fingerprint_parts(
    problem: Problem, space: Space, objectives: Sequence[Objective], budget: str, flat: bool
) -> dict[str, Any]:
    """Return everything that all workers of a study must share, as JSON can hold it."""
    training = problem.describe(problem.training) | {"recipes": problem.recipes, "seed": problem.seed}
    parts = {
        "version": VERSION,
        "task": {"description": repr(problem.task), "data": problem.task.fingerprint},
        "network": {"name": problem.network, "digest": problem.digest},
        "space": space.to_dict() | {"flat": flat},
        "objectives": [one.name for one in objectives],
        "budget": budget,
        "training": training,
    }
    # Tuples become lists, so that the parts equal those that are read back.
    found: dict[str, Any] = json.loads(json.dumps(parts))
    return found


def check_fingerprint(stored: Mapping[str, Any], own: Mapping[str, Any], name: str) -> None:
    """Raise if a study was begun with something else.

    Raises:
        SettingError: names the first part that differs.
    """
    for part, value in own.items():
        if stored.get(part) != value:
            raise SettingError(
                f"the {part} of a search must be that of its study {name!r}, {_short(stored.get(part))}, "
                f"got {_short(value)}. Give another --out or --name, or restore it."
            )


def study_name(problem: Problem, objectives: Sequence[Objective]) -> str:
    """Return the name of a study, the same on every machine that runs the same line."""
    return "-".join([problem.task.name, problem.network, *(one.name for one in objectives)])


def _short(value: Any) -> str:
    """Return a value in at most a line; of long ones a digest."""
    text = json.dumps(value)
    if len(text) <= 120:
        return text
    return f"{text[:80]}… ({hashlib.sha256(text.encode()).hexdigest()[:8]})"
