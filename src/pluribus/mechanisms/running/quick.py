"""Quick: a frozen graph as it runs, with results written into memory that is not needed any more."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from pluribus.errors import InputError
from pluribus.mechanisms.graph.reuse_memory import reuse_memory
from pluribus.mechanisms.members.cache import Cache
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import without_dispatch_modes
from pluribus.mechanisms.running.kept_memory import keep_freed_memory
from pluribus.mechanisms.running.pieces import SAMPLES, samples_that_fit

PIECE = 1 << 25
"""Bytes of activations of a piece of a batch on a CPU. Sixteen draws of MCDropout on ResNet-18 took 25.6
times the plain network for 32 samples at once, 18.3 times in pieces of 8 (48 MB), and 16.6 in pieces of 4.
"""
UNFIT = (RuntimeError, IndexError, TypeError, ValueError, ArithmeticError, AssertionError)
"""Errors of operators for values that do not fit: of inputs, or of a graph whose file was damaged. Those of
sizes are ArithmeticError, and where torch computes shapes alone it asserts."""
AUTOCAST = ("cpu", "cuda", "mps", "xpu")
"""Devices of which torch can be asked whether they have mixed precision; for others it raises (2.13)."""


class QuickGraph:
    """Run a graph without gradients.

    It has no tensors: it reads those of the module, wherever they are moved. Threads may share it. Large
    batches whose samples do not depend on one another run in pieces that stay near the processor.

    Args:
        module: The plain graph.
        inputs: One input of it.
        free: Whether it takes batches of any size.
    """

    def __init__(self, module: GraphModule, inputs: Sequence[Tensor], free: bool = False) -> None:
        self.module, self.inputs, self.free = module, tuple(inputs), free
        self._run: Callable[..., Tensor] | None = None
        self._writing = threading.Lock()
        self._counted = Cache()

    def forward(self, *inputs: Any) -> Tensor:
        """Return what the graph computes."""
        most = self.most_samples(inputs)
        if most is None:
            return self._whole(*inputs)
        return torch.cat([self._whole(*piece.args) for piece in Inputs(inputs, {}).chunks(most)], dim=1)

    def most_samples(self, inputs: Sequence[Any]) -> int | None:
        """Return how many samples of a batch run at once; None for all of them.

        Args:
            inputs: The batch.
        """
        first = inputs[0]
        if not self.free or first.shape[0] <= SAMPLES or torch.compiler.is_compiling():
            return None
        # Samples of tensors without values cannot be compared, and other devices like large batches.
        if type(first) is not Tensor or first.device.type != "cpu":
            return None
        # Counting is no part of what the caller runs, and may count.
        with without_dispatch_modes():
            return samples_that_fit(Inputs(tuple(inputs), {}), PIECE, self._one, self._counted)

    def _whole(self, *inputs: Any) -> Tensor:
        return self.code(inputs[0].device)(self.module, *inputs)

    def _one(self, inputs: Inputs) -> Tensor:
        """Return what the graph computes; raise our own error, whatever it fails with."""
        try:
            return self._whole(*inputs.args)
        except UNFIT as error:
            raise InputError(str(error)) from error

    def code(self, device: torch.device) -> Callable[..., Tensor]:
        """Return what runs now: a function of an object that holds the tensors, and of the inputs.

        Args:
            device: Where the graph is now.
        """
        # There a value may have less precision than the sum that would be written into it.
        if device.type in AUTOCAST and torch.is_autocast_enabled(device.type):
            return type(self.module).forward
        return self._run or self.prepare(device)

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
                if device.type == "cpu":
                    keep_freed_memory()
                inputs = [one.to(device) for one in self.inputs]
                # A class of its own for each graph, whose code reads the tensors of `self`.
                written = GraphModule(self.module, reuse_memory(self.module, inputs))
                self._run = type(written).forward
            return self._run

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a copy is made: code is written again."""
        return QuickGraph, (self.module, self.inputs, self.free)


def reading(module: GraphModule, tensors: Mapping[str, Tensor]) -> SimpleNamespace:
    """Return what the code of a graph takes as its module, with other tensors in it.

    The module itself stays as it is, because other threads may run it meanwhile.

    Args:
        module: The graph.
        tensors: By name, one for each parameter and buffer of the module.
    """
    held: dict[str, Any] = {name: tensors[name] for name in tensors if "." not in name}
    for name, child in module.named_children():
        prefix = f"{name}."
        own = {key.removeprefix(prefix): one for key, one in tensors.items() if key.startswith(prefix)}
        assert isinstance(child, GraphModule)
        held[name] = partial(type(child).forward, reading(child, own))
    return SimpleNamespace(**held)
