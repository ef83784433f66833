"""ONNX files, checked with onnxruntime."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from pluribus.errors import ExportError
from pluribus.export.file_format import Dynamic, FileFormat, Run
from pluribus.mechanisms.network.dry_run import silence

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
FOLDED = 64
"""Numbers in a constant that is computed ahead. Sizes and axes have fewer. Weights have more: computed ahead,
what members share would be stored once for each of them."""


class Onnx(FileFormat):
    """The format of onnxruntime and of most other runtimes."""

    name = "onnx"
    suffix = ".onnx"
    packages = PACKAGES
    computes_weights = True

    def write(self, program: ExportedProgram, path: Path, sizes: Dynamic, description: str) -> None:
        converted = convert_to_onnx(program)
        converted.rename_axes(_size_names(program, sizes))
        for node in converted.model.graph:
            # Notes of the exporter for its developers take more room than the weights of small networks.
            node.metadata_props.clear()
        converted.model.metadata_props["pluribus"] = description
        # Files above 2 GB, the limit of the format, keep their weights in a second file beside them.
        converted.save(path)

    def open(self, path: Path) -> Run:
        runtime = self.load_packages()[-1]
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        # Level 3 leaves out the notices about weights that the graph could do without.
        options.log_severity_level = 3
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]

        def run(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            arrays = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
            outputs = session.run(names, arrays)
            return {name: torch.as_tensor(value) for name, value in zip(names, outputs, strict=True)}

        return run


def convert_to_onnx(program: ExportedProgram) -> Any:
    """Return a graph as an ONNX program of torch, with the names of inputs and outputs.

    Raises:
        ExportError: An operator has no counterpart.
    """
    _, onnxscript, _ = Onnx().load_packages()
    inputs = list(program.graph_signature.user_inputs)
    outputs = list(program.call_spec.out_spec.context)
    try:
        with silence(), warnings.catch_warnings():
            # torch warns of what torch itself does (2.13), and of torchvision, which nobody needs here.
            warnings.simplefilter("ignore")
            converted: Any = torch.onnx.export(
                program, input_names=inputs, output_names=outputs, dynamo=True, verbose=False, optimize=False
            )
            onnxscript.optimizer.optimize(converted.model, input_size_limit=FOLDED, output_size_limit=FOLDED)
    # The exporter has errors of its own, which no public name covers.
    except Exception as error:
        reason = str(error.__cause__ or error).strip().splitlines()
        raise ExportError(
            f"every operator must have a counterpart in ONNX, got {type(error).__name__}: "
            f"{reason[0] if reason else ''}. Export to format='pt2' instead."
        ) from error
    return converted


def _size_names(program: ExportedProgram, sizes: Dynamic) -> dict[str, str]:
    """Return by torch's symbol of a free size the name that the file gives it."""
    names = dict[str, str]()
    for node in program.graph.nodes:
        for axis, size in sizes.get(node.name, {}).items():
            names[str(node.meta["val"].shape[axis])] = size
    return names
