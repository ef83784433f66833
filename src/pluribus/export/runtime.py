"""Runtime: the interface of a program that runs a graph in place of PyTorch."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import GraphModule

Call = Callable[..., Tensor]
"""Takes the inputs of a graph by position, and returns its output. Threads may call it at once."""
FREE_BATCHES = (1, 2, 7)


@dataclass(frozen=True, eq=False)
class Graph:
    """The graph of all members for one kind of inputs.

    Attributes:
        module: Takes tensors by position and returns `[members, batch, ...]`.
        names: Of these tensors.
        example: Tensors that it takes, with two samples where the batch is free.
        free: Of each tensor, whether its axis 0 is a batch of any size.
    """

    module: GraphModule
    names: tuple[str, ...]
    example: tuple[Tensor, ...]
    free: tuple[bool, ...]

    @property
    def batches(self) -> Sequence[int]:
        """The sizes of batch to compare; one where the size is fixed."""
        return FREE_BATCHES if any(self.free) else (len(self.example[0]),)

    def inputs(self, batch: int) -> tuple[Tensor, ...]:
        """Return the example with another size of batch, samples repeated from the start."""
        found = list[Tensor]()
        for tensor, is_free in zip(self.example, self.free, strict=True):
            places = torch.arange(batch, device=tensor.device) % max(1, len(tensor)) if is_free else None
            found.append(tensor if places is None else tensor.index_select(0, places))
        return tuple(found)


class Runtime(ABC):
    """Runs graphs.

    Attributes:
        name: As users write it.
        tolerance: The largest difference from PyTorch that rounding explains, for numbers around one.
    """

    name: str
    tolerance: float = 1e-5

    @abstractmethod
    def check(self, device: torch.device) -> None:
        """Raise `ExportError` with a remedy where the runtime is missing, or does not know the device."""

    @abstractmethod
    def compile(self, graph: Graph) -> Call:
        """Return a function that computes what the graph computes, for batches of any size."""
