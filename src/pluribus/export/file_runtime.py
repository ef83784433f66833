"""Runtimes that read a file: onnxruntime and OpenVINO."""

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

from pluribus.errors import ExportError
from pluribus.export.file_format import FileFormat
from pluribus.export.naming import with_parameters
from pluribus.export.packages import load_packages
from pluribus.export.runtime import Call, Graph, Runtime
from pluribus.export.tracing import distinct_batch, trace_module

OUTPUT = "members"


class FileRuntime(Runtime):
    """Write a graph to a temporary file, and run that.

    Args:
        name: As users write it.
        form: The format of the file.
    """

    def __init__(self, name: str, form: FileFormat) -> None:
        self.name, self.form, self.tolerance = name, form, form.tolerance

    def check(self, device: torch.device) -> None:
        load_packages(f"engine {self.name!r}", self.form.packages, self.form.extra)
        if device.type != "cpu":
            raise ExportError(
                f"engine {self.name!r} must have a frozen ensemble on the CPU, got one on {device}. "
                f"Use frozen.cpu().with_engine({self.name!r}), or the engine 'inductor'."
            )

    def compile(self, graph: Graph) -> Call:
        sizes = dict[str, dict[int, str]]()
        for name, is_free in zip(graph.names, graph.free, strict=True):
            sizes[name] = {0: "batch"} if is_free else {}
        tensors = graph.inputs(distinct_batch(graph.example))
        program = trace_module(_Named(graph), tensors, sizes, len(graph.module(*tensors)))
        with tempfile.TemporaryDirectory(prefix="pluribus-") as folder:
            path = Path(folder) / f"model{self.form.suffix}"
            self.form.write(program, path, sizes, "{}")
            run = self.form.open(path)

        def call(*given: Tensor) -> Tensor:
            return run(dict(zip(graph.names, given, strict=True)))[OUTPUT]

        return call


class _Named(nn.Module):
    """A graph with named inputs and a named output."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.network = graph.module

        def forward(*tensors: Tensor) -> dict[str, Tensor]:
            return {OUTPUT: self.network(*tensors)}

        self.forward = with_parameters(forward, graph.names)
        self.eval()
