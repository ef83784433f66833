"""Network: a copy of the user's module with what Pluribus knows of it."""

import copy
import inspect
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.graph.export import Graph, read_graph
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.mechanisms.network.example import make_example
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.outputs import Output


class Network:
    """The user's module, copied, with an example input and its data flow.

    Args:
        model: A module, which is copied and not touched, or a factory of one. A factory with one
            required argument gets the width: 1.0 builds the network, 0.5 one of half the width.
        example: One input as the module takes it; made from the module where it is needed.
        output: What of the returned values is the prediction.
        seed: Of what a factory draws.

    Attributes:
        kind: The class of the user's module, whatever it becomes.
    """

    def __init__(
        self,
        model: nn.Module | Callable[..., nn.Module],
        example: Any = None,
        output: Output = None,
        seed: int = 0,
    ) -> None:
        self.factory: Callable[[], nn.Module] | None = None
        self.by_width: Callable[[float], nn.Module] | None = None
        if isinstance(model, nn.Module):
            self.module = copy_module(model)
        else:
            self.by_width = model if _takes_width(model) else None
            self.factory = partial(model, 1.0) if self.by_width else model
            with seeded(seed):
                self.module = built(self.factory)
            copy_module(self.module)  # rows will be copies of it: what cannot be copied is refused here
        self.kind = type(self.module).__name__
        self.output = output
        # A copy, since the network may write into its input, and the user's tensors are never touched.
        self.given = None if example is None else Inputs.of(example).copy()
        self._graphs: dict[bool, Graph | UnreadableError] = {}

    @property
    def example(self) -> Inputs:
        """The example that was given, or one made from the module; a new copy for every run."""
        return self._example.copy()

    @cached_property
    def _example(self) -> Inputs:
        example = self.given or make_example(self.module)
        return example.doubled() if example.batch == 1 else example  # BatchNorm learns from two at least

    def become(self, module: nn.Module, factory: Callable[[], nn.Module] | None = None) -> None:
        """Takes another module in place of its own, which takes the same inputs."""
        self.module, self.factory, self._graphs = module, factory, {}

    def graph(self, training: bool) -> Graph:
        """The data flow in train or in eval mode, read once, or failed once."""
        if training not in self._graphs:
            try:
                self._graphs[training] = read_graph(self.module, self.example, training)
            except UnreadableError as error:
                self._graphs[training] = error
        if isinstance(found := self._graphs[training], UnreadableError):
            raise found
        return found

    def tensors(self) -> dict[str, Tensor]:
        """All parameters and buffers under their first name; tied ones once."""
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def allow_other_weights(self, names: Iterable[str]) -> list[str]:
        """Prepares embeddings whose weights will be computed or stacked: their gradients become dense.

        Returns:
            The names of the layers that were changed; a limit on norms, which is written into the
            weights, is refused.
        """
        chosen, changed = set(names), []
        for name, layer in self.module.named_modules():
            weight = f"{name}.weight".lstrip(".")
            if not isinstance(layer, nn.Embedding | nn.EmbeddingBag) or weight not in chosen:
                continue
            if layer.max_norm is not None:
                raise ConversionError(
                    f"{name or 'the network itself'} must not write into its weights, however: it is an "
                    f"{type(layer).__name__} with max_norm={layer.max_norm}. Leave it out: exclude={name!r}."
                )
            if layer.sparse:
                layer.sparse = False
                changed.append(name)
        return changed

    def persistent(self) -> set[str]:
        """The names that the user's own `state_dict` keeps."""
        return set(self.module.state_dict())


def copy_module(module: nn.Module) -> nn.Module:
    """A deep copy; what cannot be copied is refused with a remedy."""
    for name, layer in module.named_modules():
        if isinstance(layer, torch.jit.ScriptModule):
            raise ConversionError(
                f"{name or 'the network itself'} must be Python, however: it is a {type(layer).__name__}. "
                "Pass the module before torch.jit.script."
            )
        if any(
            tensor.is_meta for tensor in (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
        ):
            raise ConversionError(
                f"{name or 'the network itself'} must have weights, however: it is on the meta device. "
                "Give it some with to_empty(device=...) and its initialiser."
            )
        if any(is_lazy(parameter) for parameter in layer.parameters(recurse=False)):
            raise ConversionError(
                f"{name or 'the network itself'} must have weights, however: it is a {type(layer).__name__} "
                "that has not run yet. Run the network once before."
            )
    try:
        return copy.deepcopy(module, computed(module))
    except Exception as error:
        raise ConversionError(
            f"{type(module).__name__} must be copied and cannot be: {error}. Take out what cannot be "
            "copied, or give its class a __deepcopy__ (a factory does not help: members are copies too)."
        ) from error


def computed(module: nn.Module) -> dict[int, Any]:
    """A memo for `deepcopy`: plain copies of computed tensors that layers keep and torch does not copy."""
    found = {}
    for layer in module.modules():
        for value in vars(layer).values():
            for tensor in value if isinstance(value, list) else [value]:
                if isinstance(tensor, Tensor) and not tensor.is_leaf:
                    found[id(tensor)] = tensor.detach().clone()
    return found


def _takes_width(factory: Callable[..., nn.Module]) -> bool:
    return len(_needed(factory)) == 1


def _needed(factory: Callable[..., nn.Module]) -> list[str]:
    """The positional arguments that a call cannot be without."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # not a function, or one of C
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind in positional]


def built(factory: Callable[[], nn.Module]) -> nn.Module:
    """What a factory builds; refuses anything but a module."""
    if not callable(factory):
        raise ConversionError(
            f"model must be a torch.nn.Module or a factory of one, however: {type(factory).__name__}."
        )
    needed = _needed(factory)
    if needed:
        raise ConversionError(
            "model must be a module, or be called without arguments or with a width alone, however: it needs "
            f"{', '.join(needed)}. Pass what it makes, or `lambda: ...` that makes it."
        )
    module = factory()
    if not isinstance(module, nn.Module):
        raise ConversionError(
            f"the factory must build a torch.nn.Module, however: it built {type(module).__name__}."
        )
    return module
