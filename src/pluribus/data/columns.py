"""Columns of a table as numbers: what was learnt about each, applied by NumPy. Imports no torch.

    kind       becomes                                       missing
    number     (value − mean) / deviation                    fill, and an indicator if training had blanks
    date       days since 1970, then as a number             as a number
    boolean    0 or 1                                        fill, and an indicator if training had blanks
    category   one number for each category, 0 or 1          all 0, and an indicator if training had blanks
    code       place among the categories from 1, for a      0
               network that learns a vector for each
    dropped    nothing

A category that training did not have is all 0 (code: 0), and its row is flagged. `learn_columns` makes the
record from the training rows of a table, `column_record.py` takes it to and from JSON.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from pluribus.data.cells import (
    MISSING_WORDS,
    Array,
    Cells,
    by_value,
    find_missing,
    read_cells,
    to_flag,
    to_number,
    to_word,
)
from pluribus.data.dates import to_date, to_days
from pluribus.data.limits import quoted
from pluribus.errors import InputError
from pluribus.ranges import nearest

NUMBER, DATE, BOOLEAN, CATEGORY, CODE, DROPPED = "number", "date", "boolean", "category", "code", "dropped"
KINDS = (NUMBER, DATE, BOOLEAN, CATEGORY, CODE, DROPPED)
READERS: dict[str, Callable[[object], float]] = {NUMBER: to_number, DATE: to_days, BOOLEAN: to_flag}
EXPECTED = {NUMBER: "finite numbers", DATE: "dates such as 2024-03-01", BOOLEAN: "true or false"}
SHOWN_CATEGORIES = 5
"""Categories that the printed table lists."""


@dataclass(frozen=True)
class Column:
    """Hold what was learnt about a column from the training rows.

    Args:
        name: In the header of the table.
        kind: One of `KINDS`.
        mean: Of numbers and dates, over values that are there; else 0.
        deviation: Standard deviation of numbers and dates; else 1.
        low: Least value.
        high: Greatest value.
        fill: Stands for a missing value of a number, date or boolean.
        categories: Words of a category or code, in order.
        missing: Training rows without a value; where there are any, an indicator column follows.
        note: Reason for the kind, in words.
    """

    name: str
    kind: str
    mean: float = 0.0
    deviation: float = 1.0
    low: float = 0.0
    high: float = 0.0
    fill: float = 0.0
    categories: tuple[str, ...] = ()
    missing: int = 0
    note: str = ""

    @property
    def has_indicator(self) -> bool:
        """Return True if the last number of the column marks a missing value."""
        # A code marks it by 0, and needs no number more.
        return self.missing > 0 and self.kind not in (DROPPED, CODE)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Return the names of the numbers that the column becomes."""
        if self.kind == DROPPED:
            return ()
        names = [self.name]
        if self.kind == CATEGORY:
            names = [f"{self.name}={word}" for word in self.categories]
        if self.has_indicator:
            names.append(f"{self.name} is missing")
        return tuple(names)

    @cached_property
    def places(self) -> dict[str, int]:
        """Map each category to its place."""
        return {word: place for place, word in enumerate(self.categories)}

    def described(self) -> tuple[str, ...]:
        """Return its line of the printed table: name, kind, numbers, blanks, what was done."""
        done = [self.note] if self.note else []
        if self.kind == DATE:
            done.append(f"days, mean {to_date(self.mean)}, deviation {self.deviation:.4g}")
        if self.kind == NUMBER:
            done.append(f"mean {self.mean:.4g}, deviation {self.deviation:.4g}")
        if self.kind == BOOLEAN:
            done.append("false and no are 0, true and yes are 1")
        if self.kind == CODE:
            done.append(f"a vector for each of {len(self.categories)}")
        done += self.categories[:SHOWN_CATEGORIES]
        more = len(self.categories) - SHOWN_CATEGORIES
        if more > 0:
            done.append(f"and {more} more")
        if self.has_indicator:
            done.append("blanks are 0" if self.kind == CATEGORY else f"blanks filled with {self.fill:.4g}")
            done.append("indicator")
        return self.name, self.kind, str(len(self.features)), str(self.missing), ", ".join(done)


@dataclass(frozen=True)
class Encoded:
    """Hold rows of a table as numbers.

    Args:
        values: Before scaling, float64 `[count, features]`.
        flags: For each row, how it is unlike training: unseen categories, unexpected blanks; else nothing.
    """

    values: Array
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Columns:
    """Turn the cells of a table into numbers, column by column.

    Args:
        columns: Each column.
        missing_words: Words that stand for a missing value, in lower case.

    Example:
        >>> age = Column("age", "number", mean=40.0, deviation=10.0)
        >>> columns = Columns((age, Column("sex", "category", categories=("f", "m"))))
        >>> columns.features
        ('age', 'sex=f', 'sex=m')
        >>> encoded = columns.encode({"age": ["50", "30"], "sex": ["m", "x"]})
        >>> columns.scale(encoded.values)
        array([[ 1.,  0.,  1.],
               [-1.,  0.,  0.]])
        >>> encoded.flags
        ('', 'unseen sex=x')
    """

    columns: tuple[Column, ...]
    missing_words: tuple[str, ...] = MISSING_WORDS

    def __iter__(self) -> Iterator[Column]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    @cached_property
    def used(self) -> tuple[Column, ...]:
        """Return the columns that are not dropped."""
        return tuple(column for column in self.columns if column.kind != DROPPED)

    @cached_property
    def features(self) -> tuple[str, ...]:
        """Return the names of all numbers of an encoded row."""
        return tuple(chain.from_iterable(column.features for column in self.used))

    @cached_property
    def starts(self) -> Array:
        """Return the place of the first number of each used column, and the number of features at the end."""
        widths = [len(column.features) for column in self.used]
        return np.cumsum([0, *widths])

    @cached_property
    def codes(self) -> dict[int, int]:
        """Return the number of categories of each code, by its place among the features."""
        placed = zip(self.used, self.starts.tolist(), strict=False)
        return {start: len(column.categories) for column, start in placed if column.kind == CODE}

    @cached_property
    def means(self) -> Array:
        """Return what scaling subtracts, `[features]`; 0 for one-hot numbers and indicators."""
        means = np.zeros(len(self.features))
        means[self.starts[:-1]] = [column.mean for column in self.used]
        return means

    @cached_property
    def deviations(self) -> Array:
        """Return what scaling divides by, `[features]`; 1 for one-hot numbers and indicators."""
        deviations = np.ones(len(self.features))
        deviations[self.starts[:-1]] = [column.deviation for column in self.used]
        return deviations

    def encode(self, table: Mapping[str, Cells], lines: Sequence[int] | None = None) -> Encoded:
        """Return rows as numbers before scaling.

        Args:
            table: Cells by name of column. Columns that are dropped or unknown are not read.
            lines: Number of each row's line in its file, for error messages.

        Raises:
            InputError: A column lacks, or a cell cannot be read.
        """
        count = self._count(table)
        words = frozenset(self.missing_words)
        values = np.zeros((count, len(self.features)))
        flags: list[list[str]] = [[] for _ in range(count)]
        # The last of the starts is the end of all features, and belongs to no column.
        for column, start in zip(self.used, self.starts, strict=False):
            cells = table[column.name]
            missing = find_missing(cells, words)
            own = values[:, start : start + len(column.features)]
            if column.kind in READERS:
                own[:, 0] = _read_numbers(column, cells, missing, lines)
            else:
                _encode_words(column, cells, missing, own, flags)
            _mark_missing(column, missing, own, flags)
        return Encoded(values, tuple("; ".join(flag) for flag in flags))

    def _count(self, table: Mapping[str, Cells]) -> int:
        """Return the number of rows; raise for columns that lack or differ in length."""
        for column in self.used:
            if column.name not in table:
                raise InputError(
                    f"the table must have the column {column.name!r}, got no column of that name."
                    + nearest(column.name, table)
                )
        lengths = {len(table[column.name]) for column in self.used}
        if len(lengths) != 1:
            raise InputError(f"columns must have one length, got {sorted(lengths)}.")
        return lengths.pop()

    def scale(self, values: Array) -> Array:
        """Return encoded rows with numbers and dates at mean 0 and deviation 1, `[count, features]`."""
        scaled: Array = (values - self.means) / self.deviations
        return scaled

    def __str__(self) -> str:
        """Return a table of what becomes of each column."""
        head = ("column", "kind", "numbers", "blanks", "what was done")
        rows = [head, *(column.described() for column in self.columns)]
        widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            padded = map(str.ljust, row, widths)
            lines.append("  ".join(padded).rstrip())
        return "\n".join(lines)


def _read_numbers(column: Column, cells: Cells, missing: Array, lines: Sequence[int] | None) -> Array:
    """Return numbers with blanks filled.

    Raises:
        InputError: A cell is no finite number, date or flag.
    """
    values = read_cells(cells, READERS[column.kind])
    odd = np.flatnonzero(~np.isfinite(values) & ~missing).tolist()
    if odd:
        # Editors count lines of the file, the header and blank lines among them.
        place = f"row {odd[0] + 1}" if lines is None else f"line {lines[odd[0]]}"
        raise InputError(
            f"column {column.name!r} must hold {EXPECTED[column.kind]}, got {quoted(cells[odd[0]])} in "
            f"{place}. Correct it, or add the word to missing_words if it stands for a missing value."
        )
    return np.where(missing, column.fill, values)


def _encode_words(column: Column, cells: Cells, missing: Array, own: Array, flags: list[list[str]]) -> None:
    """Write one-hot numbers, or places from 1 of a code, and flag words that training did not have.

    Args:
        column: A category or a code.
        cells: Of all rows.
        missing: True for each blank cell, `[count]`.
        own: The numbers of the column, `[count, features]`, which are written.
        flags: For each row, to which words are added.
    """
    words = by_value(cells, to_word)
    places = np.array([column.places.get(word, -1) for word in words])
    places[missing] = -1
    if column.kind == CODE:
        own[:, 0] = places + 1
    else:
        known = np.flatnonzero(places >= 0)
        own[known, places[known]] = 1
    for row in np.flatnonzero((places < 0) & ~missing).tolist():
        flags[row].append(f"unseen {column.name}={words[row]}")


def _mark_missing(column: Column, missing: Array, own: Array, flags: list[list[str]]) -> None:
    """Write the indicator; flag blanks of a column that had none in training."""
    if column.has_indicator:
        own[:, -1] = missing
        return
    # A code has no indicator, but blanks that training had are nothing new.
    if column.kind == CODE and column.missing:
        return
    for row in np.flatnonzero(missing).tolist():
        flags[row].append(f"missing {column.name}")
