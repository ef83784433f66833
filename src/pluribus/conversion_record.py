"""Conversion: the printable record of a conversion, layer by layer."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pluribus.deprecation import find_renamed
from pluribus.errors import InputError
from pluribus.notebook import html_table

ON_TRAINED = {
    "kept": "a trained network is kept: every member starts as it",
    "approximate": "a trained network is nearly kept: members start around it",
    "retrain": "a trained network is not kept: train the ensemble before it predicts",
}
"""What becomes of a trained network, and the same as a sentence."""


@dataclass(frozen=True)
class LayerRecord:
    """Result of a conversion for one layer.

    Attributes:
        names: All names of the layer.
        kind: Its class.
        became: Its form in the ensemble, in a few words.
        reason: Why it was left as it is; empty if it was converted.
    """

    names: tuple[str, ...]
    kind: str
    became: str
    reason: str = ""


@dataclass(frozen=True)
class Conversion:
    """Record of what `convert` did with each layer.

    Attributes:
        title: The method and the network.
        rows: One for each layer, in the network's order.
        notes: Further facts that a user should know.
        on_trained: What becomes of a trained network, one of `ON_TRAINED`.
    """

    title: str
    rows: tuple[LayerRecord, ...]
    notes: tuple[str, ...] = ()
    on_trained: str = ""

    def __getitem__(self, name: str) -> LayerRecord:
        for row in self.rows:
            if name in row.names:
                return row
        names: list[str] = []
        for row in self.rows:
            names.extend(known or "''" for known in row.names)
        raise InputError(f"layers are {', '.join(names) or 'none'}, got {name!r}.")

    def __iter__(self) -> Iterator[LayerRecord]:
        return iter(self.rows)

    @property
    def converted(self) -> tuple[LayerRecord, ...]:
        """Return the records of the layers that were converted."""
        return tuple(row for row in self.rows if not row.reason)

    def __str__(self) -> str:
        lines = [self.title]
        names = [_show(row.names) for row in self.rows]
        # Columns are as wide as their longest entry, so that a record of many layers can be read as a table.
        name_width = max(map(len, names), default=0)
        kind_width = max((len(row.kind) for row in self.rows), default=0)
        for name, row in zip(names, self.rows, strict=True):
            lines.append(f"  {name:<{name_width}}  {row.kind:<{kind_width}}  {_describe(row)}")
        lines.append(self._summary())
        lines.extend(f"note: {note}" for note in self._remarks())
        return "\n".join(lines)

    def _remarks(self) -> tuple[str, ...]:
        """Return all sentences below the table."""
        return (ON_TRAINED[self.on_trained], *self.notes) if self.on_trained else self.notes

    def _summary(self) -> str:
        """Return how many layers were converted, and why others were left."""
        summary = f"{len(self.converted)} of {len(self.rows)} layers converted"
        left = Counter(row.reason for row in self.rows if row.reason)
        if not left:
            return summary
        counted = [f"{count} ({reason})" for reason, count in left.items()]
        return f"{summary}; left: {', '.join(counted)}"

    def _repr_html_(self) -> str:
        """Return the same table for notebooks."""
        rows = [(_show(row.names), row.kind, _describe(row)) for row in self.rows]
        return html_table(self.title, ("layer", "class", "in the ensemble"), rows, self._remarks())


def _show(names: tuple[str, ...]) -> str:
    return " = ".join(name or "(root)" for name in names)


def _describe(row: LayerRecord) -> str:
    if not row.reason:
        return row.became
    return f"{row.became}: {row.reason}"


def __getattr__(name: str) -> Any:
    return find_renamed(__name__, globals(), {"Row": "LayerRecord"}, name)
