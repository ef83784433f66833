"""Network: a copy of the user's module with what Pluribus knows of it."""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, is_lazy

from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.graph.export import read_graph
from pluribus.mechanisms.graph.operation import Graph
from pluribus.mechanisms.network.dry_run import accepting, seeded
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
        own: Whether nobody else holds the module, so that it needs no copy.

    Attributes:
        kind: The class of the user's module, whatever it becomes.
    """

    def __init__(
        self,
        model: nn.Module | Callable[..., nn.Module],
        example: Any = None,
        output: Output = None,
        seed: int = 0,
        own: bool = False,
    ) -> None:
        self.factory: Callable[[], nn.Module] | None = None
        self.by_width: Callable[[float], nn.Module] | None = None
        # A copy, since the network may write into its input, and the user's tensors are never touched.
        self.given = None if example is None else Inputs.of(example).copy()
        if isinstance(model, nn.Module):
            module = initialised(model, self.given, seed)
            self.module = module if own else copy_module(module)
        else:
            self.by_width = model if _takes_width(model) else None
            build = partial(model, 1.0) if self.by_width else model
            self.factory = lambda: initialised(built(build), self.given)
            with seeded(seed):
                self.module = self.factory()
            copy_module(self.module)  # rows will be copies of it: what cannot be copied is refused here
        _without_nested_tensors(self.module)
        self.kind = type(self.module).__name__
        self.output = output
        self._graphs: dict[tuple[bool, bool], Graph | UnreadableError] = {}

    @property
    def example(self) -> Inputs:
        """Return the example that was given, or one made from the module; a new copy for every run."""
        return self._example.copy()

    @cached_property
    def _example(self) -> Inputs:
        example = self.given or make_example(self.module)
        # BatchNorm in train mode needs two samples at least.
        return example.doubled() if example.batch == 1 else example

    @property
    def guess(self) -> Inputs | None:
        """Return the example that was made from the module; None where one was given, or none was needed."""
        made = vars(self).get("_example")
        return made.copy() if made is not None and self.given is None else None

    def become(self, module: nn.Module, factory: Callable[[], nn.Module] | None = None) -> None:
        """Take another module in place of its own, which takes the same inputs."""
        self.module, self.factory, self._graphs = module, factory, {}
        _without_nested_tensors(module)

    def graph(self, training: bool, any_batch: bool = True) -> Graph:
        """Return the data flow in train or in eval mode, read once, or failed once.

        Args:
            training: The mode.
            any_batch: Whether the graph must take batches of any size; one for the example alone is read in
                half the time.
        """
        kind = training, any_batch
        if kind not in self._graphs:
            try:
                self._graphs[kind] = read_graph(self.module, self.example, training, any_batch)
            except UnreadableError as error:
                self._graphs[kind] = error
        if isinstance(found := self._graphs[kind], UnreadableError):
            raise found
        return found

    def tensors(self) -> dict[str, Tensor]:
        """Return all parameters and buffers under their first name; tied ones once."""
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}

    def allow_other_weights(self, names: Iterable[str]) -> list[str]:
        """Prepare embeddings whose weights will be computed or stacked: their gradients become dense.

        Returns:
            The names of the layers that were changed.

        Raises:
            ConversionError: A layer limits the norms of its weights, which it does by writing into them.
        """
        chosen, changed = set(names), []
        for name, layer in self.module.named_modules():
            weight = f"{name}.weight".lstrip(".")
            if not isinstance(layer, nn.Embedding | nn.EmbeddingBag) or weight not in chosen:
                continue
            if layer.max_norm is not None:
                raise ConversionError(
                    f"{name or 'the network itself'} must not write into its weights, got an "
                    f"{type(layer).__name__} with max_norm={layer.max_norm}. Leave it out: exclude={name!r}."
                )
            if layer.sparse:
                layer.sparse = False
                changed.append(name)
        return changed

    def persistent(self) -> set[str]:
        """Return the names that the user's own `state_dict` keeps."""
        return set(self.module.state_dict())


def _without_nested_tensors(module: nn.Module) -> None:
    """Make the encoders of torch compute in prediction what they compute in training.

    With a padding mask and without gradients, `nn.TransformerEncoder` runs on nested tensors and returns
    zeros at padded positions; with gradients it does not (torch 2.13). A mean over positions then differs
    between training and prediction, and from what torch.export reads.

    Args:
        module: A copy of the user's, changed in place.
    """
    for layer in module.modules():
        if isinstance(layer, nn.TransformerEncoder):
            layer.use_nested_tensor = False


def copy_module(module: nn.Module, memory: Mapping[str, Tensor] | None = None) -> nn.Module:
    """Return a deep copy.

    Args:
        module: Stays as it is.
        memory: By name of a parameter or buffer, where its copy lies; others lie in memory of their own.

    Raises:
        ConversionError: The module is scripted, has no weights yet, or cannot be copied.
    """
    for name, layer in module.named_modules():
        _check_copyable(name or "the network itself", layer)
    try:
        return copy.deepcopy(module, computed(module) | _copied_into(module, memory or {}))
    except Exception as error:
        raise ConversionError(
            f"{type(module).__name__} must be copied and cannot be: {error}. Take out what cannot be "
            "copied, or give its class a __deepcopy__ (a factory does not help: members are copies too)."
        ) from error


@torch.no_grad()
def _copied_into(module: nn.Module, memory: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """Return a memo for `deepcopy`: copies of some tensors in given memory."""
    memo = dict[int, Tensor]()
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if name not in memory:
            continue
        value = memory[name].copy_(tensor)
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(value, tensor.requires_grad) if is_parameter else value
    return memo


def _check_copyable(name: str, layer: nn.Module) -> None:
    """Raise for a layer without Python code, or without weights that could be copied."""
    kind, parameters = type(layer).__name__, list(layer.parameters(recurse=False))
    if isinstance(layer, torch.jit.ScriptModule):
        raise ConversionError(
            f"{name} must be Python, got a {kind}. Pass the module before torch.jit.script."
        )
    if any(tensor.is_meta for tensor in (*parameters, *layer.buffers(recurse=False))):
        raise ConversionError(
            f"{name} must have weights, got a {kind} on the meta device. "
            "Give it some with to_empty(device=...) and its initialiser."
        )
    if any(is_lazy(parameter) for parameter in parameters):
        raise ConversionError(
            f"{name} must have weights, got a {kind} that has not run yet. Pass example=, one input of the "
            "network, or run the network once before."
        )


def initialised(module: nn.Module, example: Inputs | None, seed: int | None = None) -> nn.Module:
    """Return a module whose lazy layers have weights: itself if it has none of these, else a copy.

    Args:
        module: The module, which stays as it is.
        example: One input. Without one, the module is returned as it is.
        seed: For the weights that are drawn; None draws from torch's random numbers.

    Raises:
        InputError: The module raises on the example.
    """
    tensors = [*module.parameters(), *module.buffers()]
    if example is None or not any(map(is_lazy, tensors)):
        return module
    # torch copies lazy parameters and refuses to copy lazy buffers (2.13).
    buffers = [buffer for buffer in module.buffers() if is_lazy(buffer)]
    memo = {id(one): _lazy_copy(one) for one in buffers}
    module = copy.deepcopy(module, memo)
    modes = {layer: layer.training for layer in module.modules()}
    # In eval mode, so that norms keep their first statistics.
    module.eval()
    given = example.copy()
    with accepting(example), torch.no_grad(), nullcontext() if seed is None else seeded(seed):
        module(*given.args, **given.keywords)
    for layer, mode in modes.items():
        layer.training = mode
    return module


def _lazy_copy(buffer: Tensor) -> UninitializedBuffer:
    """Return a buffer without values, of the same precision and on the same device."""
    return UninitializedBuffer(device=buffer.device, dtype=buffer.dtype)  # type: ignore[call-arg]


def computed(module: nn.Module) -> dict[int, Any]:
    """Return a memo for `deepcopy`: plain copies of computed tensors that layers keep.

    torch refuses to copy a tensor that was computed with gradients (2.13).
    """
    kept: list[Any] = []
    for layer in module.modules():
        for value in vars(layer).values():
            kept += value if isinstance(value, list) else [value]
    tensors = [one for one in kept if isinstance(one, Tensor) and not one.is_leaf]
    return {id(tensor): tensor.detach().clone() for tensor in tensors}


def _takes_width(factory: Callable[..., nn.Module]) -> bool:
    return len(_needed(factory)) == 1


def _needed(factory: Callable[..., nn.Module]) -> list[str]:
    """Return the names of the positional arguments that a call cannot be without."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    # It is no function, or one of C, which has no signature.
    except (TypeError, ValueError):
        return []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind in positional]


def built(factory: Callable[[], nn.Module]) -> nn.Module:
    """Return what a factory builds.

    Raises:
        ConversionError: It is no factory, needs arguments, or builds something else than a module.
    """
    if not callable(factory):
        raise ConversionError(
            f"model must be a torch.nn.Module or a factory of one, got {type(factory).__name__}. "
            "Pass the network itself, or a function that builds it."
        )
    needed = _needed(factory)
    if needed:
        raise ConversionError(
            "model must be a module, or a factory without arguments or of a width alone, got one that needs "
            f"{', '.join(needed)}. Pass what it makes, or `lambda: ...` that makes it."
        )
    module = factory()
    if not isinstance(module, nn.Module):
        raise ConversionError(
            f"the factory must build a torch.nn.Module, got {type(module).__name__}. Return the network."
        )
    return module
