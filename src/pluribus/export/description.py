"""The description of an exported file: a JSON document beside it and inside of it."""

from typing import Any

import torch

from pluribus.export.file_format import FileFormat
from pluribus.export.head import Pooled
from pluribus.export.source import Source
from pluribus.export.tracing import Dynamic
from pluribus.version import VERSION

FORMAT = "pluribus export"
DOCUMENT = 1
"""The version of the document."""


def describe(source: Source, pooled: Pooled, form: FileFormat, dynamic: Dynamic) -> dict[str, Any]:
    """Return everything that a program needs to call a file and to read its outputs.

    Args:
        source: What is exported.
        pooled: Its module.
        form: The format of the file.
        dynamic: Free sizes beside that of the batch.
    """
    return {
        "format": FORMAT,
        "version": DOCUMENT,
        "file_format": form.name,
        "made_with": {"pluribus": VERSION, "torch": str(torch.__version__)},
        "likelihood": source.likelihood.to_dict(),
        "members": len(source.weights),
        "weights": source.weights.double().tolist(),
        "inputs": _inputs(source, dynamic),
        "outputs": [{"name": name, "meaning": meaning} for name, meaning in pooled.outputs.items()],
        "level": pooled.level if "lower" in pooled.outputs else None,
        "preprocessing": None,
        "classes": None,
        **source.facts,
    }


def _inputs(source: Source, dynamic: Dynamic) -> list[dict[str, Any]]:
    """Return name, type and shape of each input; a free size is its name."""
    batch, found = source.example.batch, []
    for name, tensor in source.named_tensors(source.example).items():
        shape: list[int | str] = list(tensor.shape)
        if shape and shape[0] == batch:
            shape[0] = "batch"
        for axis, size in dynamic.get(name, {}).items():
            shape[axis] = size
        kind = str(tensor.dtype).removeprefix("torch.")
        found.append({"name": name, "dtype": kind, "shape": shape})
    return found
