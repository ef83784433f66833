"""From plain rows to the inputs of an exported file, by NumPy: columns, scaling, types, and all checks.

A row is one of

    [5.1, 3.5, 1.4]                 the numbers of the only input, nested as its axes are
    {"age": 50, "sex": "m"}         cells by name of column, where the run was trained on a table
    {"tokens": [...], "mask": []}   by name of input, where the network has several
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pluribus.data.column_record import SCHEMA as COLUMNS
from pluribus.data.column_record import columns_from_dict
from pluribus.data.columns import NUMBER, Column, Columns
from pluribus.errors import CheckpointError, InputError
from pluribus.schema import Fields, Items, Mismatch, Number, Optional, Schema, Text, Whole, shown
from pluribus.serving.exported import Array, Arrays, Exported, Input
from pluribus.serving.refusal import bad

REMEDY = "Export the ensemble again."
SCALING = Fields(
    {
        "shape": Items(Whole(0), most=8),
        "mean": Items(Number(finite=True)),
        "std": Items(Number(finite=True)),
    }
)
SCHEMA: Schema = Fields(
    {
        "scaling": SCALING,
        "target_scaling": SCALING,
        "feature_names": Items(Text()),
        "columns": Optional(COLUMNS),
    },
    others=True,
)
BYTES = "uint8"


@dataclass(frozen=True, eq=False)
class Scale:
    """Numbers that are subtracted, and then divided by.

    Attributes:
        mean: Subtracted; extends to the shape of a sample.
        std: Divided by, above 0.
    """

    mean: Array
    std: Array

    def apply(self, values: Array) -> Array:
        """Return raw numbers `[count, ...]` as the network takes them; bytes are shares of 255 first."""
        if values.dtype == np.uint8:
            values = values.astype(np.float32) / np.float32(255)
        scaled: Array = (values - self.mean.astype(values.dtype)) / self.std.astype(values.dtype)
        return scaled


class Preprocessing:
    """Makes inputs from rows, as the run did that was exported.

    Args:
        exported: The file.

    Attributes:
        columns: How cells of a table become numbers; None if rows have no names.
        blanks: Whether cells may be missing.
        scale: Of the only input; None if inputs are taken as they are.
        target: Scaling of targets; None if there is none.

    Raises:
        CheckpointError: The description does not fit the file.
    """

    def __init__(self, exported: Exported) -> None:
        self.inputs = exported.inputs
        document = exported.description.get("preprocessing")
        self.columns: Columns | None = None
        self.blanks = False
        self.scale: Scale | None = None
        self.target: Scale | None = None
        if document is None:
            return
        try:
            SCHEMA.check(document, "preprocessing")
        except Mismatch as error:
            raise CheckpointError(f"{exported.path}: {error}. {REMEDY}") from error
        self.target = _scale(document["target_scaling"])
        # Networks of several inputs, and of tokens, take them as they are.
        if len(self.inputs) == 1 and np.dtype(self.inputs[0].dtype).kind == "f":
            self.scale = _scale(document["scaling"])
            self.columns = _columns(document)
            # Without a record of columns there is nothing to put in the place of a missing number.
            self.blanks = document["columns"] is not None
            self._check_fit(exported)

    def _check_fit(self, exported: Exported) -> None:
        """Raise where scaling or columns do not make the input."""
        shape = self.inputs[0].shape
        made_up = np.zeros((1, *(size if isinstance(size, int) else 8 for size in shape)))
        assert self.scale is not None
        try:
            fits = self.scale.apply(made_up).shape == made_up.shape
        except ValueError:
            fits = False
        if self.columns is not None:
            fits = fits and shape == (len(self.columns.features),)
        if not fits:
            raise CheckpointError(
                f"{exported.path}: preprocessing must make inputs of shape {list(shape)}. {REMEDY}"
            )

    def prepare(self, rows: object, dtype: str = "") -> tuple[Arrays, tuple[str, ...]]:
        """Return the inputs of rows by name, and for each row of a table how it is unlike training.

        Args:
            rows: A list of rows.
            dtype: `uint8` if the numbers are bytes of pictures, else empty.

        Raises:
            Refusal: The rows are not what the network takes.
        """
        if not isinstance(rows, list) or not rows:
            raise bad(f"rows must be a list of at least one row, got {shown(rows)}.")
        if dtype not in ("", BYTES):
            raise bad(f'dtype must be "{BYTES}" or left out, got {shown(dtype)}.')
        if isinstance(rows[0], dict):
            return self._named(rows)
        if len(self.inputs) > 1:
            names = ", ".join(one.name for one in self.inputs)
            raise bad(f"a row must be an object with {names}, got {shown(rows[0])}.")
        return {self.inputs[0].name: self._scaled(to_array("rows", rows), dtype)}, ("",) * len(rows)

    def _named(self, rows: list[Any]) -> tuple[Arrays, tuple[str, ...]]:
        """Return the inputs of rows that are objects."""
        if self.columns is not None:
            table = _table(rows, [column.name for column in self.columns.used], self.blanks)
            try:
                encoded = self.columns.encode(table)
            except InputError as error:
                raise bad(str(error)) from error
            return {self.inputs[0].name: self._scaled(encoded.values, "")}, encoded.flags
        cells = _by_name(rows, [one.name for one in self.inputs])
        found = {}
        for one in self.inputs:
            found[one.name] = self._scaled(to_array(one.name, cells[one.name]), "")
        return {one.name: fitted(one, found[one.name]) for one in self.inputs}, ("",) * len(rows)

    def _scaled(self, values: Array, dtype: str) -> Array:
        """Return the raw numbers of an input as the network takes them."""
        if dtype == BYTES:
            if values.min() < 0 or values.max() > 255:
                raise bad(f"bytes must lie from 0 to 255, got {values.min():g} to {values.max():g}.")
            values = values.astype(np.uint8)
        if self.scale is None:
            return values if len(self.inputs) > 1 else fitted(self.inputs[0], values)
        only = self.inputs[0]
        _check_shape(only, values)
        return fitted(only, self.scale.apply(values))


def to_array(name: str, values: object) -> Array:
    """Return nested lists of numbers as an array; raise `Refusal` for ragged lists and texts."""
    try:
        array = np.array(values)
    except (ValueError, OverflowError, TypeError) as error:
        raise bad(f"{name} must be nested lists of equal lengths, got ragged ones.") from error
    if array.dtype.kind not in "biuf":
        raise bad(f"{name} must hold numbers alone, got a text, null, an object or a huge number.")
    return array


def fitted(one: Input, values: Array) -> Array:
    """Return numbers in the type of an input, contiguous; raise `Refusal` unless shape and values fit."""
    _check_shape(one, values)
    if not np.isfinite(values).all():
        raise bad(f"{one.name} must be finite, got NaN or infinity.")
    dtype = np.dtype(one.dtype)
    if dtype.kind in "iub" and values.size:
        _check_whole(one, values, dtype)
    # Numbers that overflow are found below.
    with np.errstate(over="ignore"):
        found = np.ascontiguousarray(values, dtype)
    if not np.isfinite(found).all():
        raise bad(f"{one.name} must hold numbers that {one.dtype} can hold, got larger ones.")
    return found


def _check_whole(one: Input, values: Array, dtype: np.dtype[Any]) -> None:
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    whole = values.dtype.kind in "iub" or bool((values == np.floor(values)).all())
    if not whole or values.min() < low or values.max() > high:
        raise bad(f"{one.name} must hold whole numbers from {low} to {high}, got others.")


def _check_shape(one: Input, values: Array) -> None:
    """Raise `Refusal` unless values have the shape `[count, *shape]`."""
    came = values.shape[1:]
    fits = values.ndim == len(one.shape) + 1
    for size, expected in zip(came, one.shape, strict=False):
        fits = fits and (size == expected or (isinstance(expected, str) and size > 0))
    if not fits:
        expected_shape = ["batch", *one.shape]
        raise bad(f"{one.name} must have the shape {expected_shape}, got {list(values.shape)}.")


def _table(rows: Sequence[Any], names: Sequence[str], blanks: bool) -> dict[str, list[Any]]:
    """Return the cells of rows by column; raise `Refusal` for cells that are no plain values."""
    table = _by_name(rows, names)
    for name, cells in table.items():
        for cell in cells:
            if not isinstance(cell, str | int | float | bool | None):
                raise bad(
                    f"a cell must be a text, a number, true, false or null, got {name!r}: {shown(cell)}."
                )
            if cell is None and not blanks:
                raise bad(f"column {name!r} must have a number in each row, got null.")
            if isinstance(cell, float) and not np.isfinite(cell):
                raise bad(f"column {name!r} must be finite, got {cell}. Pass null for a missing value.")
    return table


def _by_name(rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values of rows by name."""
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise bad(f"every row must be an object, as the first is, got {shown(row)} in row {number}.")
        lacking = [name for name in names if name not in row]
        if lacking:
            raise bad(f"row {number} must have {lacking[0]!r}, got no such name. Pass null if it is missing.")
    return {name: [row[name] for row in rows] for name in names}


def _columns(document: Mapping[str, Any]) -> Columns | None:
    """Return the columns of a run; where a table has numbers with names alone, one for each name."""
    if document["columns"] is not None:
        return columns_from_dict(document["columns"])
    names = document["feature_names"]
    if not names or len(set(names)) != len(names):
        return None
    # No word stands for a missing number.
    return Columns(tuple(Column(name, NUMBER) for name in names), missing_words=())


def _scale(document: Mapping[str, Any]) -> Scale:
    shape, mean, std = document["shape"], document["mean"], document["std"]
    if len(mean) != len(std) or len(mean) != int(np.prod(shape)) or min(std, default=1) <= 0:
        raise CheckpointError(f"scaling must have as many numbers as its shape, and divide by > 0. {REMEDY}")
    return Scale(np.array(mean, np.float64).reshape(shape), np.array(std, np.float64).reshape(shape))
