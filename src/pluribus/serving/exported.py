"""Exported: a file of `pluribus export`, ready to run in onnxruntime."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pluribus.errors import CheckpointError, ExportError
from pluribus.monitoring import DriftMonitor
from pluribus.quiet_import import quiet_import
from pluribus.schema import shown
from pluribus.serving.export_description import REMEDY, read_beside, read_inside
from pluribus.serving.independence import made_up, samples_are_independent
from pluribus.serving.tensors import ONNX, Array, Arrays, Input


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
        # Before onnxruntime parses the file, which was damaged if its hash differs.
        beside = read_beside(self.path)
        self.session = _session(self.path, threads)
        self.description = beside or read_inside(self.path, self.session)
        given = self.description["inputs"]
        self.inputs = tuple(Input(one["name"], one["dtype"], tuple(one["shape"][1:])) for one in given)
        self.outputs = {one.name: ONNX.get(one.type, "") for one in self.session.get_outputs()}
        self._check_graph()
        self._check_run()
        self.batches = samples_are_independent(self.run, self.inputs)

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

    def _check_run(self) -> None:
        """Raise where the graph fails on a made-up sample whose sizes are all given: it is damaged."""
        # A network may refuse the made-up sizes of axes that are free.
        if any(isinstance(size, str) for one in self.inputs for size in one.shape):
            return
        random = np.random.default_rng(0)
        try:
            self.run({one.name: made_up(one, 1, random) for one in self.inputs})
        # onnxruntime has an error class for each code, without a public parent.
        except Exception as error:
            lines = str(error).splitlines() or [type(error).__name__]
            raise CheckpointError(
                f"{self.path} must run on a sample, got: {shown(lines[0])}. {REMEDY}"
            ) from error


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


def _session(path: Path, threads: int) -> Any:
    """Return a session of onnxruntime."""
    try:
        runtime = quiet_import("onnxruntime")
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
