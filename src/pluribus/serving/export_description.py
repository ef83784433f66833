"""The description of an exported file, read and checked without PyTorch."""

from pathlib import Path
from typing import Any

from pluribus.errors import CheckpointError
from pluribus.schema import Either, Fields, Items, Mismatch, Number, Optional, Schema, Text, Whole
from pluribus.untrusted import file_hash, parse_json, read_json

FORMAT = "pluribus export"
KEY = "pluribus"
"""Entry of the metadata of an ONNX file that holds the description."""
REMEDY = "Export the ensemble again."
PLACE = Fields(
    {
        "name": Text(most=1000),
        "dtype": Text(most=100),
        "shape": Items(Either((Whole(0), Text(most=1000))), most=16),
    }
)
SCHEMA: Schema = Fields(
    {
        "format": Text(pattern=FORMAT, name=f'"{FORMAT}"'),
        "version": Whole(1, 1),
        "inputs": Items(PLACE, most=1000),
        "outputs": Items(Fields({"name": Text(most=1000), "meaning": Text()}), most=1000),
        "level": Optional(Number(finite=True)),
        "classes": Optional(Either((Whole(1), Items(Text())))),
        "calibration": Optional(Fields({"score": Text(most=100)}, others=True)),
    },
    {"reference_scores": Optional(Items(Number(finite=True), most=10_000))},
    others=True,
)


def read_beside(path: Path) -> dict[str, Any] | None:
    """Return the description beside a file; None where there is none.

    Raises:
        CheckpointError: It is damaged, or its hash is not that of the file.
    """
    beside = path.with_name(f"{path.name}.json")
    if not beside.is_file():
        return None
    document: dict[str, Any] = read_json(beside, SCHEMA, REMEDY)
    if document.get("sha256") != file_hash(path):
        raise CheckpointError(
            f"{path} must be the file that {beside.name} describes, got another hash: it was damaged or "
            f"exchanged. {REMEDY}"
        )
    return document


def read_inside(path: Path, session: Any) -> dict[str, Any]:
    """Return the description in the metadata of a file.

    Args:
        path: The file.
        session: Of onnxruntime.
    """
    try:
        inside = session.get_modelmeta().custom_metadata_map.get(KEY)
    # onnxruntime decodes all texts of the file at once.
    except UnicodeDecodeError as error:
        raise CheckpointError(
            f"{path} must hold texts in UTF-8, got others: it is damaged. {REMEDY}"
        ) from error
    if inside is None:
        raise CheckpointError(f"{path} must be a file of `pluribus export`, got a foreign one. {REMEDY}")
    try:
        found: dict[str, Any] = parse_json(inside.encode("utf-8", "surrogatepass"), SCHEMA)
    except (Mismatch, ValueError) as error:
        raise CheckpointError(f"the description in {path} is damaged: {error}. {REMEDY}") from error
    return found
