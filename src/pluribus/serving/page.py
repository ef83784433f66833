"""The page at `/`: try one input, and see the answer drawn. It loads nothing from other hosts."""

import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from pluribus.data.columns import Column

if TYPE_CHECKING:
    from pluribus.serving.service import Service

SECURITY = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
PLACE = "/*FACTS*/null"
MOST_NUMBERS = 4096
"""Numbers of an input that the page fills in; more do not fit a text field."""
MOST_CATEGORIES = 200


def page(service: "Service") -> str:
    """Return the text of the page."""
    template = resources.files("pluribus.serving").joinpath("assets", "page.html").read_text("utf-8")
    # A name in a file could hold the end of the script.
    text = json.dumps(facts(service), allow_nan=False).replace("<", "\\u003c")
    return template.replace(PLACE, text)


def facts(service: "Service") -> dict[str, Any]:
    """Return what the page shows and asks for."""
    description, preprocessing = service.exported.description, service.preprocessing
    method = description.get("method") or {}
    inputs = [vars(one) | {"shape": list(one.shape)} for one in service.exported.inputs]
    columns = None
    if preprocessing.columns is not None:
        columns = [_column(column) for column in preprocessing.columns.used]
        _fill_means(columns, service)
    return {
        "name": service.name,
        "method": method.get("kind") if isinstance(method, dict) else None,
        "members": description.get("members"),
        "level": description.get("level"),
        "inputs": inputs,
        "columns": columns,
        "scaled": preprocessing.scale is not None,
        "example": _example(service),
    }


def _column(column: Column) -> dict[str, Any]:
    """Return a column for a field of the form."""
    return {
        "name": column.name,
        "kind": column.kind,
        "mean": column.mean,
        "deviation": column.deviation,
        "categories": list(column.categories[:MOST_CATEGORIES]),
    }


def _fill_means(columns: list[dict[str, Any]], service: "Service") -> None:
    """Put the mean of the scaling where columns of plain numbers have none of their own."""
    scale = service.preprocessing.scale
    if service.preprocessing.blanks or scale is None or scale.mean.size != len(columns):
        return
    pairs = zip(scale.mean.ravel().tolist(), scale.std.ravel().tolist(), strict=True)
    for column, (mean, deviation) in zip(columns, pairs, strict=True):
        column["mean"], column["deviation"] = mean, deviation


def _example(service: "Service") -> Any:
    """Return a row to begin with: the mean of the training data, or zeros; None if it is too large."""
    row: dict[str, Any] = {}
    for one in service.exported.inputs:
        sizes = [size if isinstance(size, int) else 8 for size in one.shape]
        if int(np.prod(sizes)) > MOST_NUMBERS:
            return None
        values = np.zeros(sizes)
        if service.preprocessing.scale is not None:
            values = np.round(values + service.preprocessing.scale.mean, 4)
        # Tokens and masks are whole numbers.
        row[one.name] = values.tolist() if np.dtype(one.dtype).kind == "f" else values.astype(int).tolist()
    return row if len(row) > 1 else next(iter(row.values()))
