"""Learn the kinds and statistics of columns from the training rows of a table. Imports no torch.

all cells, blanks left out, are                            kind
none, or one value in every row                            dropped
whole numbers that count the rows, or an id by name        dropped
true and false, or yes and no                              boolean
numbers, also as $1,234.50 or 45 %                         number
dates, the year first or with dots                         date
words, at most 64, each in two rows on average             category
other words, and words among numbers, such as of tickets   dropped
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pluribus.data.cells import (
    MISSING_WORDS,
    Array,
    Cells,
    by_value,
    find_missing,
    read_cells,
    to_number,
    to_word,
)
from pluribus.data.columns import (
    BOOLEAN,
    CATEGORY,
    DATE,
    DROPPED,
    EXPECTED,
    KINDS,
    NUMBER,
    READERS,
    Column,
    Columns,
)
from pluribus.data.dates import is_ambiguous_date
from pluribus.data.limits import quoted
from pluribus.errors import InputError, SettingError
from pluribus.ranges import nearest

MOST_CATEGORIES = 64
"""Categories of a column whose kind was not given; more make more inputs than most tables can teach."""
MOST_GIVEN_CATEGORIES = 10_000
"""Categories of a column that the user called a category or a code."""
MOST_ODD_WORDS = 10
"""Different words among numbers that may stand for missing values; more make a column of text."""
AN_ID = "an id: a whole number of its own in every row"
REPEATED_ID = "an id by its name: {distinct} different whole numbers in {rows} rows"
LEAST_ROWS_OF_ID = 3
"""Rows from which on different whole numbers are taken for an id."""
ID_NAME = re.compile(
    r"^$|(^|[_\s.-])(id|pid|uid|uuid|index|rowid|rownames|p?idnum|unnamed: 0)$", re.IGNORECASE
)
CAMEL_ID_NAME = re.compile(r"[a-z](ID|Id)$")


def learn_columns(
    table: Mapping[str, Cells],
    rows: Sequence[int] | None = None,
    kinds: Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    missing_words: Sequence[str] = (),
) -> Columns:
    """Return the kinds and statistics of all columns.

    Args:
        table: Cells by name of column, in the order of the table.
        rows: Places of the training rows; all by default. Nothing is learnt from others.
        kinds: Kinds of columns that the user decided on.
        keep: Columns that the user chose to predict from: they are not taken for an id.
        missing_words: Words that stand for a missing value, besides the usual ones.

    Example:
        >>> print(learn_columns({"age": ["1", "", "4"], "city": ["Bonn", "Bonn", "Rome"], "x": [7, 7, 7]}))
        column  kind     numbers  blanks  what was done
        age     number   2        1       mean 2.5, deviation 1.5, blanks filled with 2.5, indicator
        city    dropped  0        0       text: 2 different values in 3 rows
        x       dropped  0        0       constant: 7
    """
    kinds = dict(kinds or {})
    _check_kinds(kinds, table)
    added = [word.strip().lower() for word in missing_words]
    words = tuple(dict.fromkeys((*MISSING_WORDS, *added)))
    places = list(range(_length(table)) if rows is None else rows)
    # A column that is alone is meant to be learnt from, even if it counts. An index may follow another one.
    first = len(table) > 1
    found = []
    for name, all_cells in table.items():
        cells = [all_cells[place] for place in places]
        missing = find_missing(cells, frozenset(words))
        kind, note = kinds.get(name, ""), "by choice"
        if not kind:
            kind, note = infer_kind(name, cells, missing)
            # Whom the user chose to predict from is no id, whatever it looks like.
            may_be_id = kind == NUMBER and name not in keep
            reason = why_id(name, cells, places, first) if may_be_id else ""
            if reason:
                kind, note = DROPPED, reason
        first = first and note == AN_ID
        column = learn_column(name, kind, note, cells, missing)
        found.append(column)
    _check_some_used(found)
    return Columns(tuple(found), words)


def infer_kind(name: str, cells: Cells, missing: Array) -> tuple[str, str]:
    """Return the kind of a column, and the reason where it is dropped.

    Args:
        name: Of the column, for errors.
        cells: Of the training rows.
        missing: True for each blank cell, `[count]`.

    Raises:
        InputError: Numbers and words are mixed, so that any kind would lose something.
    """
    present = _present(cells, missing)
    if not present:
        return DROPPED, "blank in every row"
    if present.count(present[0]) == len(cells):
        return DROPPED, f"constant: {to_word(present[0])[:40]}"
    for kind in (BOOLEAN, NUMBER, DATE):
        share = _share_read(kind, present)
        if share == 1:
            return kind, ""
        if kind == NUMBER and share >= 0.5:
            return DROPPED, _words_among_numbers(name, present, share)
    distinct = len(set(by_value(present, to_word)))
    # Where words hardly repeat they are names or remarks, from which nothing can be learnt as categories.
    if distinct > min(MOST_CATEGORIES, len(present) / 2):
        if all(by_value(present, is_ambiguous_date)):
            return (
                DROPPED,
                f"dates with the day or the month first: {to_word(present[0])}; write the year first",
            )
        note = f"text: {distinct} different values in {len(present)} rows"
        # Words that repeat are categories, only more than most tables can teach.
        if distinct <= len(present) / 2:
            note += f", more than {MOST_CATEGORIES}; kinds='{name}=code' learns a vector for each"
        return DROPPED, note
    return CATEGORY, ""


def _present(cells: Cells, missing: Array) -> list[Any]:
    """Return the cells that are not blank, in order."""
    places = np.flatnonzero(~missing).tolist()
    return [cells[place] for place in places]


def _share_read(kind: str, present: Cells) -> float:
    """Return the share of the cells that the reader of a kind can read."""
    # The first cell decides for most columns, and reading text as dates is slow.
    if kind != NUMBER and np.isnan(READERS[kind](present[0])):
        return 0.0
    values = read_cells(present, READERS[kind])
    return float((~np.isnan(values)).mean())


def _words_among_numbers(name: str, present: Cells, share: float) -> str:
    """Return why a column of numbers with many words among them is dropped, such as one of tickets.

    Raises:
        InputError: There are few different words. Dropping the numbers because of one would lose them without
            need, and words such as `unknown` stand for a missing value.
    """
    odd = sorted({to_word(cell) for cell in present if np.isnan(to_number(cell))})
    if len(odd) > MOST_ODD_WORDS:
        return f"text: {len(odd)} different words among numbers, such as {quoted(odd[0])}"
    raise InputError(
        f"column {name!r} must hold numbers or words, got both: {quoted(odd[0])}, but {share:.0%} numbers. "
        f"Set the option missing_words={','.join(odd)} if that stands for a missing value, "
        f"kinds='{name}=category' if it is one of several groups, or kinds='{name}=dropped'."
    )


def why_id(name: str, cells: Cells, places: Sequence[int], first: bool) -> str:
    """Return why numbers only name the rows; empty if they do not.

    An id has the name of one, or is a first column that counts the rows. An id by its name may come again, as
    that of a patient who was examined twice.

    Args:
        name: Of the column.
        cells: Of the training rows.
        places: Of these rows in the table.
        first: True for the first column and those after other ids, where an index of rows is written.
    """
    named = bool(ID_NAME.search(name) or CAMEL_ID_NAME.search(name))
    if not (named or first) or len(cells) < LEAST_ROWS_OF_ID:
        return ""
    values = read_cells(cells, to_number)
    if not (np.isfinite(values) & (values == values.round())).all():
        return ""
    offsets = np.unique(values - np.asarray(places))
    # An index counts from 0 or 1; a first column that counts from 1990 holds years.
    counts = len(offsets) == 1 and offsets[0] in (0, 1)
    distinct, rows = len(np.unique(values)), len(values)
    if counts or (named and distinct == rows):
        return AN_ID
    # A number that few rows share says whose row it is. One that many share may be a group, such as a ward.
    if named and distinct > rows / 2:
        return REPEATED_ID.format(distinct=distinct, rows=rows)
    return ""


def learn_column(name: str, kind: str, note: str, cells: Cells, missing: Array) -> Column:
    """Return a column of a known kind with its statistics.

    Args:
        name: Of the column.
        kind: One of `KINDS`.
        note: Reason for the kind.
        cells: Of the training rows.
        missing: True for each blank cell, `[count]`.
    """
    count = int(missing.sum())
    if kind == DROPPED:
        return Column(name, kind, missing=count, note=note)
    if kind not in READERS:
        categories = _categories(name, cells, missing)
        return Column(name, kind, categories=categories, missing=count, note=note)
    values = _numbers(name, kind, cells, missing)
    low, high, mean = float(values.min()), float(values.max()), float(values.mean())
    if kind == BOOLEAN:
        return Column(name, kind, low=low, high=high, fill=mean, missing=count, note=note)
    if low == high:
        # The mean of equal numbers may be rounded, and their deviation be tiny instead of 0.
        return Column(name, kind, low, 1.0, low, high, fill=low, missing=count, note=note)
    return Column(name, kind, mean, float(values.std()), low, high, fill=mean, missing=count, note=note)


def _numbers(name: str, kind: str, cells: Cells, missing: Array) -> Array:
    """Return the numbers of the cells that are not blank.

    Raises:
        InputError: A cell is none, or all cells are blank.
    """
    came = "blanks alone" if missing.all() else ""
    values = read_cells(cells, READERS[kind])
    odd = np.flatnonzero(~np.isfinite(values) & ~missing).tolist()
    if odd:
        came = repr(cells[odd[0]])
    if came:
        raise InputError(
            f"column {name!r} must hold {EXPECTED[kind]}, got {came}. Choose another kind, or drop it."
        )
    return values[~missing]


def _categories(name: str, cells: Cells, missing: Array) -> tuple[str, ...]:
    """Return the words of a column in order.

    Raises:
        InputError: There is none, or there are too many.
    """
    words = set(map(to_word, _present(cells, missing)))
    if not 1 <= len(words) <= MOST_GIVEN_CATEGORIES:
        raise InputError(
            f"column {name!r} must have 1 to {MOST_GIVEN_CATEGORIES} categories, got {len(words)}. Drop it."
        )
    return tuple(sorted(words))


def _length(table: Mapping[str, Cells]) -> int:
    """Return the number of rows.

    Raises:
        InputError: Columns differ in it, or there is no column.
    """
    lengths = {len(cells) for cells in table.values()}
    if len(lengths) != 1:
        raise InputError(f"columns must have one length, got {sorted(lengths) or 'no columns'}.")
    return lengths.pop()


def _check_kinds(kinds: Mapping[str, str], table: Mapping[str, Cells]) -> None:
    """Raise for a kind that does not exist, or of a column that does not exist."""
    for name, kind in kinds.items():
        if name not in table:
            raise SettingError(f"kinds must name columns, got {name!r}.{nearest(name, table)}")
        if kind not in KINDS:
            raise SettingError(f"kinds are {', '.join(KINDS)}, got {kind!r}.{nearest(kind, KINDS)}")


def _check_some_used(columns: Sequence[Column]) -> None:
    """Raise where every column is dropped."""
    if any(column.kind != DROPPED for column in columns):
        return
    reasons = "; ".join(f"{column.name!r} is {column.note}" for column in columns[:10])
    raise InputError(
        f"a column must be left to predict from, got only dropped ones: {reasons}. "
        "Set the option kinds, such as kinds='name=category'."
    )
