"""Figure files: the figures of the page as PNG and SVG."""

import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from plotly.graph_objects import Figure
from plotly.io import write_images

from pluribus.errors import SettingError
from pluribus.report.figures import make_panels
from pluribus.report.groups import Group

# The legend of a figure as a file lies below the title of its axis, where it hides nothing.
BELOW = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
ENDINGS = ("png", "svg")


def check_figures() -> None:
    """Raise where nothing can draw figures as files; to be called before anything is written.

    Raises:
        SettingError: kaleido, or a browser for it, is missing.
    """
    if find_spec("kaleido") is None:
        raise SettingError(
            "kaleido must be installed to save figures, got none. Install pluribus with the extra figures."
        )
    # kaleido brings this package, so that it cannot be imported above.
    from choreographer.browsers.chromium import Chromium

    if not Chromium.find_browser(skip_local=False):
        raise SettingError(
            "a Chromium or Chrome must be installed for kaleido to save figures, got neither. Install one."
        )


def write_figures(folder: Path, groups: Sequence[Group]) -> list[Path]:
    """Write every figure, as it is first shown, as PNG and SVG; write all or none.

    Raises:
        SettingError: kaleido or its browser is missing, or fails.
    """
    check_figures()
    drawn: dict[str, Figure] = {}
    for number, group in enumerate(groups):
        # Figures of several groups have the same names.
        stem = f"{number}-" if len(groups) > 1 else ""
        for panel in make_panels(group):
            first = Figure(panel.first).update_layout(template="plotly_white", margin={"t": 40}, legend=BELOW)
            for ending in ENDINGS:
                drawn[f"{stem}{panel.name}.{ending}"] = first
    with TemporaryDirectory() as made:
        _draw(drawn, Path(made))
        folder.mkdir(parents=True, exist_ok=True)
        for name in drawn:
            shutil.copy(Path(made, name), folder)
    return [folder / name for name in drawn]


def _draw(drawn: dict[str, Figure], folder: Path) -> None:
    """Draw figures into files by their names."""
    files = [folder / name for name in drawn]
    try:
        write_images(fig=list(drawn.values()), file=files, width=800, height=500, scale=2)
    except Exception as error:  # kaleido and the browser raise errors of many kinds
        raise SettingError(
            f"kaleido must be able to draw in a Chromium or Chrome, got {error!r}. "
            "The page shows the same figures."
        ) from error
