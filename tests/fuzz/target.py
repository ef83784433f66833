"""Target: one kind of file that a case damages and reads."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.damages import Damage
from tests.fuzz.outcome import Case


@dataclass(frozen=True)
class Target:
    """One kind of file.

    Args:
        folder: Folder of the corpus that is copied.
        files: The files in it to damage, as a pattern.
        damages: Ways to damage one, besides random bytes.
        read: Reads the copy; gets its folder, the damaged file, and random numbers.
        weight: How often it is chosen, relative to others.
    """

    folder: str
    files: str
    damages: tuple[Damage, ...]
    read: Callable[[Case, Path, Path, random.Random], None]
    weight: int = 2
