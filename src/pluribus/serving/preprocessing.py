"""From plain rows to the inputs of an exported file, by NumPy: columns, scaling, types, and all checks.

A row is one of

    [5.1, 3.5, 1.4]                 the numbers of the only input, nested as its axes are
    {"age": 50, "sex": "m"}         cells by name of column, where the run was trained on a table
    {"tokens": [...], "mask": []}   by name of input, where the network has several
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pluribus.data.column_record import SCHEMA as COLUMNS
from pluribus.data.columns import Columns
from pluribus.errors import CheckpointError, InputError
from pluribus.schema import Fields, Items, Mismatch, Number, Optional, Schema, Text, Whole, shown
from pluribus.serving.exported import Exported
from pluribus.serving.input_checks import as_bytes, check_shape, fitted, to_array
from pluribus.serving.named_rows import by_name, named_columns, read_table
from pluribus.serving.refusal import bad
from pluribus.serving.tensors import Array, Arrays

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
        elif values.dtype.kind != "f":
            # In the type of whole numbers, mean and deviation would be cut to whole numbers too.
            values = values.astype(np.float64)
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
            self.columns = named_columns(document)
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
            table = read_table(rows, [column.name for column in self.columns.used], self.blanks)
            try:
                encoded = self.columns.encode(table)
            except InputError as error:
                raise bad(str(error)) from error
            return {self.inputs[0].name: self._scaled(encoded.values, "")}, encoded.flags
        cells = by_name(rows, [one.name for one in self.inputs])
        found = {}
        for one in self.inputs:
            found[one.name] = self._scaled(to_array(one.name, cells[one.name]), "")
        return {one.name: fitted(one, found[one.name]) for one in self.inputs}, ("",) * len(rows)

    def _scaled(self, values: Array, dtype: str) -> Array:
        """Return the raw numbers of an input as the network takes them."""
        if dtype == BYTES:
            values = as_bytes(values)
        if self.scale is None:
            return values if len(self.inputs) > 1 else fitted(self.inputs[0], values)
        only = self.inputs[0]
        check_shape(only, values)
        return fitted(only, self.scale.apply(values))


def _scale(document: Mapping[str, Any]) -> Scale:
    shape, mean, std = document["shape"], document["mean"], document["std"]
    if len(mean) != len(std) or len(mean) != int(np.prod(shape)) or min(std, default=1) <= 0:
        raise CheckpointError(f"scaling must have as many numbers as its shape, and divide by > 0. {REMEDY}")
    return Scale(np.array(mean, np.float64).reshape(shape), np.array(std, np.float64).reshape(shape))
