"""Present a search: the front on the terminal, and the page."""

from collections.abc import Mapping

from pluribus.comparison.record import Record
from pluribus.search.study import Study


def present(study: Study, final: Mapping[str, Record]) -> None:
    """Print the front and the choice, and write the page."""
    print(study)
