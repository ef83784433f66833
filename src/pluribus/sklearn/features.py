"""Inputs of estimators as numbers: arrays as they are, DataFrames with words or blanks by their columns."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from pluribus.data.cells import Array
from pluribus.data.column_kinds import learn_columns
from pluribus.data.columns import BOOLEAN, CATEGORY, DATE, NUMBER, Columns
from pluribus.data.scaling import Scaling
from pluribus.data.tables import from_frame
from pluribus.errors import InputError

KINDS = {"b": BOOLEAN, "i": NUMBER, "u": NUMBER, "f": NUMBER, "M": DATE}
"""Kinds of columns by the letter of their type, as NumPy has it."""
BY_TYPE = "by its type"
"""Reason for the kind of a column, in words."""


def is_table(X: Any) -> bool:
    """Return whether this is a DataFrame with words, dates or blanks, which no array of numbers can hold."""
    if not hasattr(X, "iloc") or not hasattr(X, "columns"):
        return False
    numbers = all(dtype.kind in "biuf" for dtype in X.dtypes)
    return not numbers or bool(X.isna().any(axis=None))


def learn_table(frame: Any) -> Columns:
    """Return the record of a DataFrame's columns; its types decide their kinds."""
    kinds = {}
    for name, dtype in zip(frame.columns, frame.dtypes, strict=True):
        # A column of Python objects may hold anything, so that its cells decide.
        if str(dtype) != "object":
            kinds[str(name)] = KINDS.get(dtype.kind, CATEGORY)
    table = from_frame(frame)
    learnt = learn_columns(table.cells, kinds=kinds, keep=list(table.cells))
    columns = [replace(one, note=BY_TYPE) if one.name in kinds else one for one in learnt]
    return Columns(tuple(columns), learnt.missing_words)


def check_table(X: Any) -> None:
    """Raise unless this is a DataFrame."""
    if not hasattr(X, "iloc"):
        raise InputError(
            "X must be a DataFrame with the columns that the estimator was fitted on, "
            f"got {type(X).__name__}."
        )


def encode_table(columns: Columns, frame: Any) -> Array:
    """Return the rows of a DataFrame as numbers before scaling, float64 `[count, features]`."""
    return columns.encode(from_frame(frame).cells).values


def learn_scaling(values: Array, weights: Array | None) -> Scaling:
    """Return the scaling to mean 0 and variance 1 of each feature or channel, which lie on axis 1.

    Args:
        values: Numbers `[count]` or `[count, features, ...]`.
        weights: How much each sample counts, `[count]`: a weight of 2 is that of a sample given twice.
    """
    columns = np.moveaxis(values, 1, -1) if values.ndim > 1 else values[:, None]
    repeats = columns[0, ..., 0].size
    counts = None if weights is None else np.repeat(weights, repeats)
    columns = columns.reshape(len(values) * repeats, -1)
    mean = np.average(columns, axis=0, weights=counts)
    std = np.sqrt(np.average((columns - mean) ** 2, axis=0, weights=counts))
    # The mean of equal numbers may be rounded, and their deviation be tiny instead of 0.
    constant = (columns == columns[:1]).all(axis=0)
    mean, std = np.where(constant, columns[0], mean), np.where(constant, 1.0, std)
    # Statistics extend along the axes after that of the channels.
    shape = (-1, *[1] * (values.ndim - 2)) if values.ndim > 1 else ()
    return Scaling(torch.from_numpy(mean.reshape(shape)), torch.from_numpy(std.reshape(shape)))


def scale(values: Array, scaling: Scaling) -> Array:
    """Return scaled numbers in float64, in an array of its own."""
    scaled: Array = (values - scaling.mean.double().numpy()) / scaling.std.double().numpy()
    return scaled
