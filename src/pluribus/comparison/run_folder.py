"""The folder of a run: `run.json` names its task and network, `signature.json` holds what prediction needs.

Neither holds training data. A folder can be moved, and predicts without the data that it was trained on.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pluribus.backbones import BACKBONES
from pluribus.data.signature import Signature
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError
from pluribus.fingerprint import SCHEMA as FINGERPRINT
from pluribus.fingerprint import fingerprint
from pluribus.method_text import parse_options
from pluribus.schema import Anything, Fields, Items, Named, Schema, Text
from pluribus.training import Training
from pluribus.untrusted import read_json
from pluribus.writing import replacing

FILE = "run.json"
ENSEMBLE = "ensemble"
REMEDY = "Train again with `pluribus train`."
RUNS = "runs"
"""Folder of a comparison that holds the folders of its runs."""

# Runs of earlier versions have no `data` and no `network`.
SCHEMA: Schema = Fields(
    {"task": Text(), "options": Items(Text()), "model": Text()},
    {"training": Named(Anything()), "data": Named(Anything()), "network": FINGERPRINT},
)


def write_run(
    folder: Path,
    task: str,
    options: Sequence[str],
    model: str,
    training: Training,
    data: Task,
    ensemble: Ensemble,
) -> None:
    """Write `run.json` and `signature.json` into the folder of a trained ensemble.

    Args:
        folder: Of the run.
        task: Name of the task, or the reference to the user's own.
        options: Of the task, as on the command line.
        model: Name of the network, or the reference to the user's own.
        training: Settings of the training.
        data: The task.
        ensemble: As it was trained.
    """
    document = {
        "task": task,
        "options": list(options),
        "model": model,
        "training": training.to_dict(),
        "data": described(data),
        "network": fingerprint(ensemble, data.train.example().inputs),
    }
    with replacing(folder / FILE) as unfinished:
        unfinished.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    Signature.of(data, given_delimiter(options), ensemble.members.code.forward).save(folder)


def read_run(folder: Path) -> dict[str, Any]:
    """Return the document that `write_run` wrote, checked."""
    if not folder.is_dir():
        raise SettingError(f"{folder} must be a folder of `pluribus train`, got no folder. Check the path.")
    if not (folder / FILE).is_file():
        raise SettingError(
            f"{folder} must be a folder of `pluribus train`, got one without {FILE}. Name the folder that "
            "`train`, `compare`, `search` or `finetune` wrote; an ensemble alone is read by pluribus.load."
        )
    document: dict[str, Any] = read_json(folder / FILE, SCHEMA, REMEDY)
    return document


def has_built_in_network(document: Mapping[str, Any]) -> bool:
    """Return whether the network of a `run.json` is one of the library, which needs no code of the user."""
    # A network may have a width besides its name: cnn(width=8).
    return document["model"].partition("(")[0] in BACKBONES


def given_delimiter(options: Sequence[str] | None) -> str:
    """Return the delimiter among the options of a task."""
    return str(parse_options(list(options or [])).get("delimiter", ","))


def described(data: Task) -> dict[str, Any]:
    """Return the properties that tell one task from another: sizes, shapes and classes."""
    return {
        "name": data.name,
        "sizes": f"{len(data.train)} train, {len(data.validation)} validation, {len(data.test)} test",
        "input_shape": str(list(data.input_shape)),
        "likelihood": data.likelihood.to_dict(),
        "classes": data.classes,
        "class_names": list(data.class_names),
        "feature_names": list(data.feature_names),
    }
