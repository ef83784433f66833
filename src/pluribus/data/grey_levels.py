"""Pictures with more than 256 levels of grey: which value is white.

Pillow's `convert("L")` clips 16-bit, integer and float pictures to 0 to 255, which leaves two grey levels of
a radiograph. Here such a picture is read as numbers, and the values of black and white follow from its type,
or else from the user. Nothing is guessed from a single picture: white would then differ among them.

    stored as                        black and white
    8 bits per channel               0 and 255
    unsigned, up to 16 bits          0 and 2^bits − 1
    32-bit integers                  ambiguous: the user names them
    floats, all from 0 to 1          0 and 1
    other floats                     ambiguous: the user names them
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pluribus.errors import InputError, SettingError

BYTES = "8-bit"
FLOATS = "float"
INTEGERS = "32-bit integer"
SCALED_FORMATS = ("PNG", "PPM")
"""Formats that have at most 16 bits and that Pillow scales to 16, whatever integer type it hands out."""
TIFF_BITS, TIFF_MEANING = 258, 262
"""Tags of TIFF: bits per sample, and whether 0 is white (0) or black (1)."""


@dataclass(frozen=True)
class Levels:
    """Values of black and white of a set of pictures.

    Args:
        kind: How the values are stored, such as `16-bit`.
        black: Value that becomes 0.
        white: Value that becomes 1.
    """

    kind: str
    black: float
    white: float

    def scale(self, values: np.ndarray[Any, Any], path: object) -> np.ndarray[Any, Any]:
        """Return values as shares of the range, float32 in [0, 1]; raise for values outside of it."""
        low, high = float(values.min()), float(values.max())
        if not self.black <= low <= high <= self.white:
            raise InputError(
                f"{path} must hold values from {self.black:g} to {self.white:g}, got {low:g} to {high:g}. "
                "Set the option levels=(black, white) to the range of the whole set."
            )
        return ((values - self.black) / (self.white - self.black)).astype(np.float32)

    def note(self, count: int) -> str:
        """Return a sentence on the range that was taken."""
        return (
            f"{count} {self.kind} pictures were read with black at {self.black:g} and white at "
            f"{self.white:g}. Set the option levels=(black, white) if that is another range."
        )


def kind_of(opened: Any) -> str:
    """Return how an opened picture of Pillow stores its values."""
    mode = opened.mode
    if mode == "F":
        return FLOATS
    if mode == "I" and opened.format not in SCALED_FORMATS:
        return INTEGERS
    if mode != "I" and not mode.startswith("I;16"):
        return BYTES
    tags = getattr(opened, "tag_v2", {})
    if tags.get(TIFF_MEANING) == 0:
        # Pillow inverts 8-bit pictures of this kind and leaves 16-bit ones as they are.
        raise InputError("pictures with more than 8 bits must store black as 0, got white as 0. Invert them.")
    return f"{tags.get(TIFF_BITS, (16,))[0]}-bit"


def choose_levels(kind: str, given: tuple[float, float] | None) -> Levels | None:
    """Return the range of a kind of pictures; None for bytes, which need none."""
    if given is not None:
        return Levels(kind, *given)
    if kind == BYTES:
        return None
    if kind == FLOATS:
        return Levels(kind, 0.0, 1.0)
    if kind == INTEGERS:
        raise InputError(
            "the values of black and white must be known, got 32-bit integers, which do not tell. "
            "Set the option levels=(black, white), for example levels=(0, 4095) for 12 bits."
        )
    return Levels(kind, 0.0, 2.0 ** int(kind.removesuffix("-bit")) - 1)


def check_levels(levels: object) -> None:
    """Raise unless the setting is None or two finite numbers, the lower one first."""
    if levels is None:
        return
    pair = levels if isinstance(levels, tuple | list) else ()
    numbers = [value for value in pair if type(value) in (int, float) and abs(value) < float("inf")]
    if len(pair) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise SettingError(f"levels must be two finite numbers (black, white), black first, got {levels!r}.")
