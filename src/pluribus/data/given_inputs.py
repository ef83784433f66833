"""Inputs of any form to predict for: a file, a table in memory, or arrays; held against the training inputs.

form                                            of networks that take
a path, as `pluribus predict` reads it          anything
a pandas DataFrame, cells by name of column     a table
an array or a tensor, `[count, ...]`            one input, before scaling
arrays or tensors by name                       several inputs
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from pluribus.data.limits import MOST_BYTES, listed, quoted
from pluribus.data.raw_arrays import to_tensor
from pluribus.data.raw_inputs import RawInputs, checked, read_inputs
from pluribus.data.raw_tables import encoded_rows
from pluribus.data.samples import check_unmasked
from pluribus.data.signature import Signature
from pluribus.data.tables import Table, from_frame
from pluribus.errors import InputError

NAME = "inputs"


def given_inputs(inputs: Any, signature: Signature, most_bytes: int = MOST_BYTES) -> RawInputs:
    """Return inputs of any form before scaling.

    Args:
        inputs: A path, a DataFrame, a mapping, an array or a tensor.
        signature: Of the network that the inputs are for.
        most_bytes: Memory that the inputs of a file may take.

    Raises:
        InputError: They do not fit the network.
    """
    if isinstance(inputs, RawInputs):
        return inputs
    if isinstance(inputs, str | Path):
        return read_inputs(Path(inputs), signature, most_bytes)
    if signature.has_several_inputs:
        return _several(inputs, signature)
    if isinstance(inputs, Mapping):
        return _rows(_table(inputs), signature)
    if _is_frame(inputs):
        return _rows(from_frame(inputs), signature)
    values = to_tensor(NAME, _array(NAME, inputs), signature.input_shape)
    return checked(NAME, RawInputs(values, ids=tuple(range(len(values)))), signature)


def _is_frame(inputs: object) -> bool:
    # Without an import of pandas, which need not be installed.
    return hasattr(inputs, "columns") and hasattr(inputs, "iloc")


def _table(columns: Mapping[Any, Any]) -> Table:
    """Return cells by name of column as a table; `encode` refuses columns of different lengths."""
    cells = {str(name): _cells(str(name), values) for name, values in columns.items()}
    return Table(f"the table of {NAME}", cells, range(len(next(iter(cells.values()), []))))


def _cells(name: str, values: Any) -> list[Any]:
    """Return the cells of a column: Python's own values where it is an array, a tensor or a Series."""
    if isinstance(values, Tensor | np.ndarray) or hasattr(values, "iloc"):
        try:
            values = values.tolist()
        # A tensor may be sparse, or on a device without memory: it has no cells.
        except RuntimeError:
            values = None
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(
            f"column {name!r} must be a list of cells, got {quoted(values)}. For a single row, pass lists of "
            "one cell."
        )
    return list(values)


def _rows(table: Table, signature: Signature) -> RawInputs:
    if not len(table):
        raise InputError(f"{table.title} must hold rows, got none.")
    rows = encoded_rows(table, signature)
    return checked(table.title, RawInputs(rows.values, rows.flags, rows.ids), signature)


def _several(inputs: Any, signature: Signature) -> RawInputs:
    """Return the arrays of each input of a network by its name."""
    names = [one.key for one in signature.inputs]
    held = [str(name) for name in inputs] if isinstance(inputs, Mapping) else []
    if not set(names) <= set(held):
        came = listed(held) if held else type(inputs).__name__
        raise InputError(
            f"{NAME} must be a dict with {', '.join(names)}, or the path of a .npz file with these, "
            f"got {came}."
        )
    values = {one.key: one.read(NAME, _array(one.key, inputs[one.key])) for one in signature.inputs}
    counts = {name: len(value) for name, value in values.items()}
    if len(set(counts.values())) != 1 or not max(counts.values()):
        raise InputError(f"{NAME} must hold as many rows in each of {', '.join(names)}, got {counts}.")
    return RawInputs(values, ids=tuple(range(len(values[names[0]]))))


def _array(name: str, values: Any) -> np.ndarray[Any, Any]:
    """Return values as an array; raise for anything but numbers in rows of equal length."""
    check_unmasked(name, values)
    try:
        return _plain(values)
    # A tensor may be sparse, nested, or on a device without memory.
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{name} must be numbers [count, ...], a table or a path, got {type(values).__name__}: {error}."
        ) from error


def _plain(values: Any) -> np.ndarray[Any, Any]:
    """Return values as an array, in a precision that NumPy has."""
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach().cpu().resolve_conj().resolve_neg()
    # NumPy has no bfloat16.
    return np.asarray(values.float() if values.is_floating_point() and values.itemsize < 4 else values)
