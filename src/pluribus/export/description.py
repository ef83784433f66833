"""The description of an exported file: a JSON document beside it and inside of it."""

from pathlib import Path
from typing import Any

import torch

from pluribus.calibration_record import Calibration
from pluribus.errors import CheckpointError
from pluribus.export.file_format import Dynamic, FileFormat
from pluribus.export.head import Pooled
from pluribus.export.source import Source
from pluribus.schema import Fields, Text, Whole, shown
from pluribus.untrusted import file_hash, read_json
from pluribus.version import VERSION

FORMAT = "pluribus export"
DOCUMENT = 1
"""The version of the document."""
HASH = Text(pattern="[0-9a-f]{64}", name="a SHA-256 in hexadecimal")
SCHEMA = Fields({"format": Text(), "version": Whole(1, DOCUMENT), "sha256": HASH}, others=True)
REMEDY = "Export the ensemble again."


def describe(source: Source, pooled: Pooled, form: FileFormat, sizes: Dynamic) -> dict[str, Any]:
    """Return everything that a program needs to call a file and to read its outputs.

    Args:
        source: What is exported.
        pooled: Its module.
        form: The format of the file.
        sizes: Its free sizes.
    """
    return {
        "format": FORMAT,
        "version": DOCUMENT,
        "file_format": form.name,
        "made_with": {"pluribus": VERSION, "torch": str(torch.__version__)},
        "likelihood": source.likelihood.to_dict(),
        "members": len(source.weights),
        "weights": source.weights.double().tolist(),
        "inputs": _inputs(source, sizes),
        "outputs": [{"name": name, "meaning": meaning} for name, meaning in pooled.outputs.items()],
        "level": pooled.level if {"lower", "set"} & set(pooled.outputs) else None,
        "calibration": source.calibration and source.calibration.to_dict(),
        "reference_scores": _reference(source.calibration),
        "preprocessing": None,
        "classes": None,
        **source.facts,
    }


def check_description(path: Path) -> None:
    """Raise `CheckpointError` unless a description belongs to the file beside it.

    Args:
        path: The description: `model.onnx.json` of `model.onnx`.
    """
    document = read_json(path, SCHEMA, REMEDY)
    if document["format"] != FORMAT:
        raise CheckpointError(
            f"{path} must have the format {FORMAT!r}, got {shown(document['format'])}. {REMEDY}"
        )
    file = path.with_suffix("")
    if not file.is_file():
        raise CheckpointError(f"{path} must lie beside {file.name}, got no such file. {REMEDY}")
    if file_hash(file) != document["sha256"]:
        raise CheckpointError(
            f"{file} must be the file that {path.name} describes, got another hash: it was damaged or "
            f"exchanged. {REMEDY}"
        )


def _reference(calibration: Calibration | None) -> list[float] | None:
    """Return the scores of validation samples, for a monitor of drift, as float32 can tell them apart."""
    if calibration is None or calibration.reference is None:
        return None
    return [float(f"{score:.9g}") for score in calibration.reference.tolist()]


def _inputs(source: Source, sizes: Dynamic) -> list[dict[str, Any]]:
    """Return name, type and shape of each input; a free size is its name."""
    found = []
    for name, tensor in source.tensors(source.example).items():
        shape: list[int | str] = list(tensor.shape)
        for axis, size in sizes[name].items():
            shape[axis] = size
        kind = str(tensor.dtype).removeprefix("torch.")
        found.append({"name": name, "dtype": kind, "shape": shape})
    return found
