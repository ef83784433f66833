"""The gallery: pictures that an ensemble is least and most sure of, with its members' votes."""

import base64
import io
from dataclasses import dataclass

import numpy as np

from pluribus.comparison.outcomes import Array, Gallery
from pluribus.report.groups import Entry


@dataclass(frozen=True)
class Picture:
    """One test image.

    Args:
        index: Its number among the test samples.
        png: The image file.
        truth: Its class.
        answer: The ensemble's class, by mean probabilities; the votes may be split or go another way.
        said: The members' votes by class, the most voted first, shares that sum to one.
        confidence: Confidence of the ensemble in its answer.
    """

    index: int
    png: bytes
    truth: str
    answer: str
    said: tuple[tuple[str, float], ...]
    confidence: float

    @property
    def address(self) -> str:
        """Return the image as an address within a page."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Wall:
    """The pictures of one run: those it is least sure of, least first, and those it is most sure of."""

    label: str
    seed: int
    least: tuple[Picture, ...]
    most: tuple[Picture, ...]


def read_wall(entry: Entry) -> Wall | None:
    """Return the pictures of the first run that has some; None where there is none."""
    for run in entry.runs:
        gallery = run.outcomes.gallery if run.outcomes else None
        if gallery is not None:
            found = [_picture(gallery, place) for place in range(len(gallery.index))]
            # Outcomes store the least sure ones first, and as many of the most sure ones.
            half = len(found) // 2
            return Wall(entry.label, run.seed, tuple(found[:half]), tuple(found[half:]))
    return None


def _picture(gallery: Gallery, place: int) -> Picture:
    """Return one picture, with the votes of its members."""
    votes = np.bincount(gallery.votes[:, place], weights=gallery.weights)
    order = [int(one) for one in np.argsort(-votes, kind="stable") if votes[one] > 0]
    total = float(votes.sum())
    return Picture(
        int(gallery.index[place]),
        _png(gallery.pixels[place]),
        _name(gallery, int(gallery.target[place])),
        _name(gallery, int(gallery.label[place])),
        tuple((_name(gallery, one), float(votes[one]) / total) for one in order),
        float(gallery.confidence[place]),
    )


def _name(gallery: Gallery, number: int) -> str:
    """Return the name of a class; its number where the task has no names."""
    return gallery.class_names[number] if gallery.class_names else str(number)


def _png(pixels: Array) -> bytes:
    """Return pixels `[height, width, 1 or 3]` as a file."""
    # Pillow comes with the report alone.
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
    return file.getvalue()
