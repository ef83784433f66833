"""Inductor: graphs as machine code, made by `torch.compile`."""

import os
import shutil

import torch

from pluribus.errors import ExportError
from pluribus.export.runtime import Call, Graph, Runtime
from pluribus.mechanisms.network.dry_run import PROCESS, silence
from pluribus.mechanisms.network.torch_private import mark_free_batch

COMPILERS = ("g++", "clang++", "c++", "cl")
MOST_NODES = 1000
"""Operators of a graph; the compiler takes about 50 ms for each, and graphs are compiled twice: one sample is
a case of its own."""


class Inductor(Runtime):
    """The compiler that comes with torch. On a CPU it needs a C++ compiler."""

    name = "inductor"

    def check(self, device: torch.device) -> None:
        if device.type != "cpu":
            return
        wanted = os.environ.get("CXX")
        if not any(map(shutil.which, (wanted,) if wanted else COMPILERS)):
            raise ExportError(
                f"engine 'inductor' needs a C++ compiler, got no {wanted or ' and no '.join(COMPILERS)}. "
                "Install g++, or set the environment variable CXX to the compiler."
            )

    def compile(self, graph: Graph) -> Call:
        count = sum(node.op == "call_function" for node in graph.module.graph.nodes)
        if count > MOST_NODES:
            raise ExportError(
                f"engine 'inductor' must have at most {MOST_NODES} operators to compile, got {count}. Use "
                "the engine 'onnxruntime', or fewer members: ensemble.shrink(ensemble.rank(data)[:8])."
            )
        # Weights never change, so they may be folded into the code and packed for the processor.
        compiled = torch.compile(graph.module, options={"freezing": True})

        # Compiled now, for one sample and for many, so that no later call waits for the compiler.
        with PROCESS, silence(), torch.no_grad():
            for batch in graph.batches:
                given = graph.inputs(batch)
                for tensor, free in zip(given, graph.free, strict=True):
                    # One sample is a case of its own: torch takes an axis of size 1 for something special.
                    if free and batch > 1:
                        mark_free_batch(tensor)
                compiled(*given)
        call: Call = compiled
        return call
