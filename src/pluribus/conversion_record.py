"""Conversion: the printable record of what became of every layer."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pluribus.deprecation import find_renamed
from pluribus.errors import InputError
from pluribus.notebook import html_table


@dataclass(frozen=True)
class LayerRecord:
    """What became of one layer.

    Attributes:
        names: All names of the layer.
        kind: Its class.
        became: What it is in the ensemble, in a few words.
        reason: Why it was left as it is; empty where it was converted.
    """

    names: tuple[str, ...]
    kind: str
    became: str
    reason: str = ""


@dataclass(frozen=True)
class Conversion:
    """What `convert` did, layer by layer.

    Attributes:
        title: The method and the network.
        rows: One for each layer, in the network's order.
        notes: What else a user should know.
    """

    title: str
    rows: tuple[LayerRecord, ...]
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> LayerRecord:
        for row in self.rows:
            if name in row.names:
                return row
        names = ", ".join(name or "''" for row in self.rows for name in row.names)
        raise InputError(f"layers are {names or 'none'}, got {name!r}.")

    def __iter__(self) -> Iterator[LayerRecord]:
        return iter(self.rows)

    @property
    def converted(self) -> tuple[LayerRecord, ...]:
        """The rows of layers that were not left as they were."""
        return tuple(row for row in self.rows if not row.reason)

    def __str__(self) -> str:
        lines = [(_show(row.names), row.kind, _describe(row)) for row in self.rows]
        widths = [max((len(line[column]) for line in lines), default=0) for column in range(2)]
        table = [f"  {a:<{widths[0]}}  {b:<{widths[1]}}  {c}" for a, b, c in lines]
        left = Counter(row.reason for row in self.rows if row.reason)
        summary = f"{len(self.converted)} of {len(self.rows)} layers converted"
        if left:
            summary += "; left: " + ", ".join(f"{count} ({reason})" for reason, count in left.items())
        return "\n".join([self.title, *table, summary, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Return the same table for notebooks."""
        rows = [(_show(row.names), row.kind, _describe(row)) for row in self.rows]
        return html_table(self.title, ("layer", "class", "in the ensemble"), rows, self.notes)


def _show(names: tuple[str, ...]) -> str:
    return " = ".join(name or "(root)" for name in names)


def _describe(row: LayerRecord) -> str:
    return f"{row.became}: {row.reason}" if row.reason else row.became


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, globals(), {"Row": "LayerRecord"}, name)
