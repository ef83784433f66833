"""Quick: a frozen graph as it runs, with results written into memory that is not needed any more."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from pluribus.mechanisms.graph.reuse_memory import reuse_memory
from pluribus.mechanisms.network.torch_private import without_dispatch_modes

AUTOCAST = ("cpu", "cuda", "mps", "xpu")
"""Devices of which torch can be asked whether they have mixed precision; for others it raises (2.13)."""


class QuickGraph:
    """Run a graph without gradients.

    It has no tensors: it reads those of the module, wherever they are moved. Threads may share it.

    Args:
        module: The plain graph.
        inputs: One input of it.
    """

    def __init__(self, module: GraphModule, inputs: Sequence[Tensor]) -> None:
        self.module, self.inputs = module, tuple(inputs)
        self._run: Callable[..., Tensor] | None = None
        self._writing = threading.Lock()

    def forward(self, *inputs: Any) -> Tensor:
        """Return what the graph computes."""
        device = inputs[0].device
        # There a value may have less precision than the sum that would be written into it.
        if device.type in AUTOCAST and torch.is_autocast_enabled(device.type):
            outputs: Tensor = self.module(*inputs)
            return outputs
        run = self._run or self.prepare(device)
        return run(self.module, *inputs)

    def prepare(self, device: torch.device) -> Callable[..., Tensor]:
        """Return the code that runs, written once.

        That is in the first call, because it computes shapes: a file from elsewhere is read without running
        anything of its graph.

        Args:
            device: Where the graph is now.
        """
        # Shapes are no part of what the caller runs, and may count.
        with self._writing, without_dispatch_modes():
            if self._run is None:
                inputs = [one.to(device) for one in self.inputs]
                # A class of its own for each graph, whose code reads the tensors of `self`.
                written = GraphModule(self.module, reuse_memory(self.module, inputs))
                self._run = type(written).forward
            return self._run

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy is made: code is written again."""
        return QuickGraph, (self.module, self.inputs)
