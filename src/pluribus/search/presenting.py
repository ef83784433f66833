"""Present a search: the front and the choice on the terminal, and the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pluribus.comparison.record import Record
from pluribus.search.page import write_search_page
from pluribus.search.study import TAKEN, Study, Trial


def present(study: Study, chosen: Trial, final: Mapping[str, Record], against: Sequence[Path]) -> Path:
    """Print the front and the choice, write the page, and return its path.

    Args:
        study: The search.
        chosen: The trial that was taken.
        final: Records of the front on test data, by key.
        against: Folders of other searches with the same objectives.
    """
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"The front, {len(study.complete)} trials", title_justify="left")
    for head in study.heads():
        table.add_column(head, justify="left" if head == "configuration" else "right", overflow="fold")
    for row in study.table():
        table.add_row(*row)
    console.print(table, highlight=False, markup=False)
    console.print(f"Take {chosen.label}. It costs {study.price(chosen)}.", highlight=False, markup=False)
    others = _others(study, against)
    page = write_search_page(study, chosen, final, others)
    console.print(f"report:  {page}", highlight=False, soft_wrap=True)
    console.print(f"taken:   {study.problem.out / TAKEN}", highlight=False, soft_wrap=True)
    return page


def _others(study: Study, against: Sequence[Path]) -> dict[str, list[list[float]]]:
    """Return the losses of other searches by their samplers; folders tell equal ones apart."""
    found: dict[str, list[list[float]]] = {}
    for folder in against:
        sampler, losses = study.read_other(folder)
        name = sampler if sampler not in (study.sampler, *found) else f"{sampler}, {folder.name}"
        found[name] = losses
    return found
