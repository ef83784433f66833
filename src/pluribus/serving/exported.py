"""Exported: a file of `pluribus export`, ready to run in onnxruntime."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pluribus.errors import CheckpointError, ExportError
from pluribus.monitoring import DriftMonitor
from pluribus.schema import Either, Fields, Items, Mismatch, Number, Optional, Schema, Text, Whole, shown
from pluribus.serving.tensor_types import ONNX
from pluribus.untrusted import file_hash, parse_json, read_json

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

FORMAT = "pluribus export"
KEY = "pluribus"
"""Entry of the metadata of an ONNX file that holds the description."""
REMEDY = "Export the ensemble again."
MEMBERS = "members"
"""The output whose first axis is that of members; all others begin with the batch."""
TOLERANCE = 1e-3
"""Largest difference between samples that run alone and together which rounding explains."""
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


@dataclass(frozen=True)
class Input:
    """One input of the file.

    Attributes:
        name: Of the tensor.
        dtype: Its type in NumPy.
        shape: Of one sample; an axis whose size may vary has its name.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class Exported:
    """An exported ensemble that runs in onnxruntime.

    Args:
        path: The `.onnx` file, or a folder that holds exactly one.
        threads: Of onnxruntime; 0 takes as many as there are cores.

    Attributes:
        path: The file.
        description: Its description, as `pluribus export` wrote it.
        inputs: Its inputs in order.
        outputs: By name of its outputs, their types in NumPy.
        batches: Whether samples of several requests may run together; False where they affect one another.

    Raises:
        CheckpointError: The file is missing, damaged, foreign, or not the one of its description.
        ExportError: A package is missing.
    """

    def __init__(self, path: Path, threads: int = 0) -> None:
        self.path = find_file(path)
        self.session = _session(self.path, threads)
        self.description = read_description(self.path, self.session)
        given = self.description["inputs"]
        self.inputs = tuple(Input(one["name"], one["dtype"], tuple(one["shape"][1:])) for one in given)
        self.outputs = {one.name: ONNX.get(one.type, "") for one in self.session.get_outputs()}
        self._check_graph()
        self.batches = self._samples_are_independent()

    def run(self, arrays: Mapping[str, Array]) -> Arrays:
        """Return the outputs by name for inputs by name, `[batch, ...]` each."""
        names = list(self.outputs)
        return dict(zip(names, self.session.run(names, dict(arrays)), strict=True))

    def monitor(self, level: float) -> DriftMonitor | None:
        """Return a monitor of drift; None if the ensemble was not calibrated."""
        reference = self.description.get("reference_scores")
        if not reference or "ood_score" not in self.outputs:
            return None
        return DriftMonitor(reference, level, self.description["calibration"]["score"])

    def _check_graph(self) -> None:
        """Raise where the graph and its description differ, or a type has no counterpart in NumPy."""
        graph = {one.name: ONNX.get(one.type, "") for one in self.session.get_inputs()}
        described = {one.name: one.dtype for one in self.inputs}
        if graph != described:
            raise CheckpointError(
                f"{self.path} must have the inputs of its description, {described}, got {graph}. {REMEDY}"
            )
        for name, dtype in self.outputs.items():
            if not dtype:
                raise CheckpointError(
                    f"output {shown(name)} of {self.path} must have a type of NumPy. {REMEDY}"
                )

    def _samples_are_independent(self) -> bool:
        """Return whether two samples give the same outputs together and alone, tried on made-up ones."""
        random = np.random.default_rng(0)
        both = {one.name: _made_up(one, 2, random) for one in self.inputs}
        try:
            together = self.run(both)
            for place in range(2):
                alone = self.run({name: value[place : place + 1] for name, value in both.items()})
                if not _same(alone, together, place):
                    return False
        # onnxruntime has errors of its own. Inputs that the network refuses show nothing.
        except Exception:
            return False
        return True


def find_file(path: Path) -> Path:
    """Return the `.onnx` file at a path, or the only one in a folder."""
    if path.is_dir():
        found = sorted(path.glob("*.onnx"))
        if len(found) != 1:
            names = ", ".join(one.name for one in found) or "none"
            raise CheckpointError(
                f"{path} must hold one .onnx file, got {names}. Name the file, or run `pluribus export`."
            )
        return found[0]
    if not path.is_file():
        raise CheckpointError(f"{path} must be a file of `pluribus export`, got no file. Check the path.")
    if path.suffix != ".onnx":
        raise CheckpointError(
            f"a server runs .onnx files, got {path.name}. Export with `pluribus export RUN --format onnx`."
        )
    return path


def read_description(path: Path, session: Any) -> dict[str, Any]:
    """Return the description beside a file, whose hash must be that of the file, or else the one inside.

    Args:
        path: The file.
        session: Of onnxruntime.
    """
    beside = path.with_name(f"{path.name}.json")
    if beside.is_file():
        document: dict[str, Any] = read_json(beside, SCHEMA, REMEDY)
        if document.get("sha256") != file_hash(path):
            raise CheckpointError(
                f"{path} must be the file that {beside.name} describes, got another hash: it was damaged or "
                f"exchanged. {REMEDY}"
            )
        return document
    inside = session.get_modelmeta().custom_metadata_map.get(KEY)
    if inside is None:
        raise CheckpointError(f"{path} must be a file of `pluribus export`, got a foreign one. {REMEDY}")
    try:
        found: dict[str, Any] = parse_json(inside.encode(), SCHEMA)
    except (Mismatch, ValueError) as error:
        raise CheckpointError(f"the description in {path} is damaged: {error}. {REMEDY}") from error
    return found


def _session(path: Path, threads: int) -> Any:
    """Return a session of onnxruntime."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ExportError(
            "a server needs onnxruntime, got none. Install it: pip install 'pluribus[serve]'"
        ) from error
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    # Threads that wait by spinning would take the processor from the server itself.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Level 3 leaves out the notices about weights that the graph could do without.
    options.log_severity_level = 3
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    # onnxruntime has an error class for each code, without a public parent.
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise CheckpointError(f"{path} must be an ONNX file, got: {lines[0]}. {REMEDY}") from error


def _made_up(one: Input, count: int, random: np.random.Generator) -> Array:
    """Return random samples; named sizes are 8, and whole numbers 0 or 1: tokens of any vocabulary."""
    shape = (count, *(size if isinstance(size, int) else 8 for size in one.shape))
    if np.dtype(one.dtype).kind == "f":
        return random.standard_normal(shape).astype(one.dtype)
    return random.integers(0, 2, shape).astype(one.dtype)


def _same(alone: Arrays, together: Arrays, place: int) -> bool:
    """Return whether outputs of one sample are those that it has among others."""
    for name, value in alone.items():
        axis = 1 if name == MEMBERS else 0
        other = np.take(together[name], [place], axis)
        if value.dtype.kind != "f":
            # A label or a flag may flip by rounding; numbers tell enough.
            continue
        if value.shape != other.shape or not np.allclose(
            value, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
        ):
            return False
    return True
