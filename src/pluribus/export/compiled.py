"""Compiled graphs: run by another engine, and compared with the graph itself when they are made."""

from typing import Any, Self

import torch
from torch import Tensor

from pluribus.errors import ExportError, PluribusError
from pluribus.export.file_runtime import FileRuntime
from pluribus.export.inductor import Inductor
from pluribus.export.onnx import Onnx
from pluribus.export.openvino import OpenVino
from pluribus.export.runtime import Graph, Runtime
from pluribus.ranges import invalid

_RUNTIMES: tuple[Runtime, ...] = (
    FileRuntime("onnxruntime", Onnx()),
    FileRuntime("openvino", OpenVino()),
    Inductor(),
)
RUNTIMES = {runtime.name: runtime for runtime in _RUNTIMES}


def find_runtime(name: object) -> Runtime:
    """Return the runtime of a name; raise `SettingError` where there is none."""
    if isinstance(name, str) and name in RUNTIMES:
        return RUNTIMES[name]
    raise invalid("engine", f"one of {', '.join(RUNTIMES)}", name, RUNTIMES)


class CompiledGraph:
    """A graph that another engine runs. It holds no state of a call, so that threads and copies share it.

    Args:
        engine: One of `RUNTIMES`.
        graph: What it computes.

    Raises:
        SettingError: There is no such engine.
        ExportError: It is not installed, cannot run the graph, or computes something else.
    """

    def __init__(self, engine: str, graph: Graph) -> None:
        self.engine, self.graph = engine, graph
        runtime = find_runtime(engine)
        runtime.check(graph.example[0].device)
        try:
            self._call = runtime.compile(graph)
            differences = [self._difference(batch) for batch in graph.batches]
        except PluribusError:
            raise
        # Every runtime has errors of its own.
        except Exception as error:
            first = (str(error).strip().splitlines() or [""])[0]
            raise ExportError(
                f"engine {engine!r} must run the graph, got {type(error).__name__}: {first[:300]}. "
                "Use the frozen ensemble as it is, or another engine."
            ) from error
        for difference in differences:
            # NaN is not below anything.
            if not difference <= runtime.tolerance:
                raise ExportError(
                    f"engine {engine!r} must compute what the graph computes within {runtime.tolerance:g}, "
                    f"got a difference of {difference:.1e}. Use the frozen ensemble as it is, or another "
                    "engine."
                )

    @torch.no_grad()
    def _difference(self, batch: int) -> float:
        """Return the largest difference from the graph, as a share of its largest number or of one."""
        inputs = self.graph.inputs(batch)
        expected, found = self.graph.module(*inputs), self._call(*inputs)
        if found.shape != expected.shape or found.dtype != expected.dtype:
            return float("inf")
        scale = max(1.0, float(expected.abs().max()))
        return float((found - expected).abs().max()) / scale

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the outputs of all members, `[members, batch, ...]`."""
        return self._call(*inputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled code belongs to this machine, so that a copy elsewhere is compiled there.
        return CompiledGraph, (self.engine, self.graph)
