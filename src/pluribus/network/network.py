"""Network: a copy of the user's module with what Pluribus knows of it."""

import copy
from collections.abc import Callable
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from pluribus.errors import ConversionError
from pluribus.network.example import make_example
from pluribus.network.graph import Graph, read_graph
from pluribus.network.inputs import Inputs
from pluribus.network.output import Output


class Network:
    """The user's module, copied, with an example input and its data flow.

    Args:
        model: A module, which is copied and not touched, or a factory of one.
        example: One input as the module takes it; made from the module where it is needed.
        output: What of the returned values is the prediction.

    """

    def __init__(
        self, model: nn.Module | Callable[[], nn.Module], example: Any = None, output: Output = None
    ) -> None:
        self.factory = None if isinstance(model, nn.Module) else model
        self.module = copy_module(model) if isinstance(model, nn.Module) else built(model)
        self.output = output
        self._given = None if example is None else Inputs.of(example)
        self._graphs: dict[bool, Graph] = {}

    @property
    def kind(self) -> str:
        """The class of the user's module."""
        return type(self.module).__name__

    @cached_property
    def example(self) -> Inputs:
        """The example that was given, or one made from the module."""
        return self._given or make_example(self.module)

    def graph(self, training: bool) -> Graph:
        """The data flow in train or in eval mode, read once."""
        if training not in self._graphs:
            self._graphs[training] = read_graph(self.module, self.example, training)
        return self._graphs[training]

    def tensors(self) -> dict[str, Tensor]:
        """All parameters and buffers under their first name; tied ones once."""
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def persistent(self) -> set[str]:
        """The names that the user's own `state_dict` keeps."""
        return set(self.module.state_dict())


def copy_module(module: nn.Module) -> nn.Module:
    """A deep copy; what cannot be copied is refused with a remedy."""
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ConversionError(
            f"{type(module).__name__} must be copied and cannot be: {error}. "
            "Pass a factory instead: convert(lambda: build_my_model(), ...)."
        ) from error


def built(factory: Callable[[], nn.Module]) -> nn.Module:
    """What a factory builds; refuses anything but a module."""
    if not callable(factory):
        raise ConversionError(
            f"model must be a torch.nn.Module or a factory of one, however: {type(factory).__name__}."
        )
    module = factory()
    if not isinstance(module, nn.Module):
        raise ConversionError(
            f"the factory must build a torch.nn.Module, however: it built {type(module).__name__}."
        )
    return module
