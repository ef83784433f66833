"""Any CSV file with a header and a target column as a task."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from pluribus.data.assembly import assemble
from pluribus.data.limits import MOST_BYTES, check_bytes, check_file, listed
from pluribus.data.sources import reading
from pluribus.data.splits import Sizes
from pluribus.data.targets import number_words
from pluribus.data.task import Split, Task
from pluribus.errors import InputError
from pluribus.likelihood import Categorical, Likelihood
from pluribus.likelihood import likelihood as named_likelihood
from pluribus.settings import nearest, refuse, whole

Rows = dict[int, list[str]]
CELL_BYTES = 64
"""Memory of one cell while it is text: Python's string and its place in a list."""
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Starts of cells that spreadsheets compute instead of showing them."""


def csv_file(
    path: str | Path,
    target: str,
    likelihood: str | Likelihood = "gaussian",
    features: Sequence[str] | None = None,
    delimiter: str = ",",
    most_bytes: int = MOST_BYTES,
    **sizes: Unpack[Sizes],
) -> Task:
    """A table to predict one column of; a fifth of its rows are for testing.

    Args:
        path: A file in UTF-8 whose first line names the columns.
        target: The column to predict: numbers, or for the likelihood `categorical` the names of classes.
        likelihood: Of the target, where it is a number of the standardised one.
        features: Columns to predict from, all of numbers; by default all but the target.
        delimiter: What stands between cells.
        most_bytes: Memory that the table may take while it is read.
        **sizes: How much of each part to keep.
    """
    path, likelihood = Path(path).expanduser(), named_likelihood(likelihood)
    header, rows = read_rows(path, delimiter, most_bytes)
    check_columns(path, header, [target, *(features or ())], delimiter)
    chosen = list(features) if features is not None else [name for name in header if name != target]
    x = numbers(header, rows, chosen)
    if isinstance(likelihood, Categorical):
        names, y = number_words(words(header, rows, target))
    else:
        names, y = (), numbers(header, rows, [target])
    classes = len(names) if names else None
    task = assemble(
        path.stem, (Split(x, y), None, None), sizes, likelihood=likelihood, classes=classes, class_names=names
    )
    return replace(task, feature_names=tuple(chosen))


def read_rows(path: Path, delimiter: str, most_bytes: int = MOST_BYTES) -> tuple[list[str], Rows]:
    """Return the names of the columns, and the cells of each row by the number of its line in the file."""
    whole("most_bytes", most_bytes)
    check_delimiter(delimiter)
    check_file(path)
    rows: Rows = {}
    cells_read = 0
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=delimiter, strict=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            for cells in reader:
                if cells and len(cells) != len(header):
                    raise InputError(
                        f"{path} must have {len(header)} cells in each row, "
                        f"however: {len(cells)} in line {reader.line_num}. Complete or quote it."
                    )
                if cells:
                    rows[reader.line_num] = cells
                    cells_read += len(cells)
                    check_bytes(f"the cells of {path}", cells_read * CELL_BYTES, most_bytes)
        except csv.Error as error:
            raise InputError(
                f"{path} must be a CSV file, however: {error} in line {reader.line_num}."
            ) from error
    if not rows:
        raise InputError(f"{path} must hold a header and rows, however: it holds no rows.")
    return header, rows


def check_columns(path: Path, header: list[str], wanted: list[str], delimiter: str) -> None:
    """Raise for columns that share a name, are not there, or are asked for twice."""
    for names, where in ((header, f"the header of {path}"), (wanted, "target and features")):
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if twice:
            raise InputError(f"{where} must name each column once, however: {listed(twice)} twice.")
    held = set(header)  # a list would be searched from its start for each of 100,000 names
    for name in wanted:
        if name not in held:
            alone = len(header) < 2
            raise InputError(
                f"{path} has the columns {listed(header)}, however: {name!r} was asked for."
                + (f" Is {delimiter!r} the delimiter of the file?" if alone else nearest(name, header))
            )


def check_delimiter(delimiter: object) -> None:
    """Raise unless the delimiter is one character that can stand between cells."""
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise refuse("delimiter", "one character other than a quote or a line break", delimiter)


def without_formula(cell: object) -> object:
    """Return a cell that no spreadsheet computes: a word that starts as a formula gets an apostrophe.

    Example:
        >>> without_formula("=1+1"), without_formula("cat"), without_formula("-1.5")
        ("'=1+1", 'cat', '-1.5')
    """
    if not isinstance(cell, str) or not cell.lstrip(" ").startswith(FORMULA) or is_number(cell):
        return cell
    return f"'{cell}"


def is_number(cell: str) -> bool:
    """Return whether a cell can be read as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def numbers(header: list[str], rows: Rows, columns: list[str]) -> Tensor:
    """Finite numbers, float64 `[count, columns]`."""
    if not columns:
        raise InputError("features must name at least one column, however: none.")
    places = {name: place for place, name in enumerate(header)}

    def number(line: int, name: str) -> float:
        cell = rows[line][places[name]]
        try:
            return float(cell)
        except ValueError as error:
            raise InputError(
                f"column {name!r} must hold numbers, however: {cell!r} in line {line}. "
                "Fill it in, write it as a number, or choose other features."
            ) from error

    values = torch.tensor([[number(line, name) for name in columns] for line in rows], dtype=torch.float64)
    lost = (~values.isfinite()).nonzero()
    if len(lost):
        line, column = list(rows)[lost[0, 0]], columns[lost[0, 1]]
        raise InputError(
            f"cells must be finite, however: {len(lost)} of {values.numel()} are NaN or infinite, the first "
            f"in line {line}, column {column!r}. Drop these rows or fill in what is missing."
        )
    return values


def words(header: list[str], rows: Rows, column: str) -> list[str]:
    """The cells of a column, none of them blank."""
    found = {line: cells[header.index(column)].strip() for line, cells in rows.items()}
    for line, word in found.items():
        if not word:
            raise InputError(
                f"column {column!r} must name a class in each row, however: line {line} is blank. "
                "Fill it in or drop the row."
            )
    return list(found.values())
