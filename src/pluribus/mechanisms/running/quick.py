"""Quick: a frozen graph as it runs, with results written into memory that is not needed any more."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.fx import GraphModule

from pluribus.mechanisms.graph.reuse_memory import reuse_memory


class QuickGraph:
    """Run a graph without gradients.

    It has no tensors: it reads those of the module, wherever they are moved. Threads may share it.

    Args:
        module: The plain graph.
        inputs: One input of it.
    """

    def __init__(self, module: GraphModule, inputs: Sequence[Tensor]) -> None:
        self.module, self.inputs = module, tuple(inputs)
        # A class of its own for each graph, whose code reads the tensors of `self`.
        written = GraphModule(module, reuse_memory(module, self.inputs))
        self._run: Callable[..., Tensor] = type(written).forward

    def forward(self, *inputs: Any) -> Tensor:
        """Return what the graph computes."""
        return self._run(self.module, *inputs)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy is made: code is written again."""
        return QuickGraph, (self.module, self.inputs)
