"""Maps card: images of a segmentation beside the truth, the prediction and its uncertainty, as HTML."""

import base64
import io
import math

import numpy as np

from pluribus.comparison.maps import NO_CLASS, Array, Maps
from pluribus.report.glossary import escaped, glossed
from pluribus.report.groups import Entry

# The background is black; then colours that are told apart on black, again from the first after the last.
PALETTE = (
    *((59, 125, 216), (217, 114, 10), (42, 157, 92), (209, 73, 91), (142, 99, 206)),
    *((19, 151, 168), (230, 200, 60), (199, 87, 160)),
)
NOT_COUNTED = (110, 110, 110)
TITLES = ("image", "truth", "prediction", "uncertainty")


def read_maps_of(entry: Entry) -> tuple[Maps, int] | None:
    """Return the maps of the first run that has some, and its seed; None where there is none."""
    for run in entry.runs:
        if run.outcomes is not None and run.outcomes.maps is not None:
            return run.outcomes.maps, run.seed
    return None


def maps_card(entry: Entry | None) -> str:
    """Return the maps of a configuration; nothing without any."""
    found = read_maps_of(entry) if entry else None
    if found is None or entry is None:
        return ""
    maps, seed = found
    half = len(maps.index) // 2
    parts = _rows("Least sure", maps, range(half)) + _rows("Most sure", maps, range(half, len(maps.index)))
    return (
        '<div class="card"><h2>Where it is sure</h2><p class="quiet small">Test images of '
        f"{escaped(entry.label)}, seed {seed}: the image, its true regions, the predicted ones, and the "
        f"{glossed('entropy')} of each pixel; the brighter, the less sure. Pixels in grey do not count."
        f"</p>{parts}</div>"
    )


def _rows(title: str, maps: Maps, places: range) -> str:
    rows = "".join(_row(maps, place) for place in places)
    return f'<h3>{title}</h3><div class="maps">{rows}</div>'


def _row(maps: Maps, place: int) -> str:
    """Return one image with its maps side by side, and its scores below."""
    number = int(maps.index[place])
    pictures = (
        maps.pixels[place],
        coloured(maps.truth[place]),
        coloured(maps.label[place]),
        maps.entropy[place][..., None],
    )
    cells = ""
    for title, pixels in zip(TITLES, pictures, strict=True):
        cells += (
            f'<figure><img src="{_address(pixels)}" alt="{title} of test image {number}">'
            f"<figcaption>{title}</figcaption></figure>"
        )
    dice = float(maps.dice[place])
    score = "no region" if math.isnan(dice) else f"Dice {dice:.3f}"
    told = f"image {number}: {score}, mean entropy {float(maps.mean_entropy[place]):.3f}"
    return f'<div class="map"><div class="strip">{cells}</div><div class="small">{told}</div></div>'


def coloured(classes: Array) -> Array:
    """Return classes `[height, width]` as colours, `[height, width, 3]`."""
    table = np.zeros((256, 3), dtype=np.uint8)
    for number in range(1, NO_CLASS):
        table[number] = PALETTE[(number - 1) % len(PALETTE)]
    table[NO_CLASS] = NOT_COUNTED
    found: Array = table[classes]
    return found


def _address(pixels: Array) -> str:
    """Return pixels `[height, width, 1 or 3]` as an address within a page."""
    # Pillow comes with the report alone.
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
