"""Wall card: pictures that an ensemble is least and most sure of, as HTML."""

from pluribus.report.gallery import Picture, Wall
from pluribus.report.glossary import escaped, glossed

# A picture shows the votes for so many classes; the others have few.
CLASSES_SHOWN = 3


def wall_card(wall: Wall | None) -> str:
    """Return the pictures of a wall; nothing without one."""
    if wall is None:
        return ""
    lists = _pictures("Least sure", wall.least) + _pictures("Most sure", wall.most)
    return (
        f'<div class="card"><h2>What it is sure of</h2><p class="quiet small">Test images by the '
        f"{glossed('entropy')} of {escaped(wall.label)}, seed {wall.seed}, with its answer and the share of "
        f"members that vote for each class. A red frame marks a wrong answer.</p>{lists}</div>"
    )


def _pictures(title: str, pictures: tuple[Picture, ...]) -> str:
    return f'<h3>{title}</h3><ul class="gallery">{"".join(map(_picture, pictures))}</ul>'


def _picture(picture: Picture) -> str:
    """Return a picture with the answer and the votes of the members."""
    votes = ""
    for name, share in picture.said[:CLASSES_SHOWN]:
        right = " right" if name == picture.truth else ""
        votes += (
            f'<div class="vote{right}"><span>{escaped(name)}</span>'
            f'<i style="width:{share:.0%}"></i><span>{share:.0%}</span></div>'
        )
    wrong, truth = "", ""
    if picture.answer != picture.truth:
        wrong, truth = " class=wrong", f", is <b>{escaped(picture.truth)}</b>"
    return (
        f'<li{wrong}><img src="{picture.address}" alt="test image {picture.index}, {escaped(picture.truth)}">'
        f"<div>{picture.confidence:.0%} sure of <b>{escaped(picture.answer)}</b>{truth}</div>{votes}</li>"
    )
