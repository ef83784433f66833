"""Kinds of inputs: which calls a graph takes, and the names and the order of its inputs."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pluribus.mechanisms.graph.builder import GraphBuilder
from pluribus.mechanisms.graph.program import Signature, has_form
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import tree_leaves


@dataclass(frozen=True)
class Kind:
    """One kind of inputs that a graph takes.

    Attributes:
        signature: Structure, sizes and types of a call.
        names: Of the inputs of the graph, in the order of the network's `forward`.
        places: Of these inputs among all values of a call.
        plain: Whether a call has nothing but these inputs, by position and in this order.
    """

    signature: Signature
    names: tuple[str, ...]
    places: tuple[int, ...]
    plain: bool

    def accepts(self, args: Sequence[Any]) -> bool:
        """Return whether positional inputs are of this kind, in as little time as possible."""
        if not self.plain or len(args) != len(self.places):
            return False
        # Networks take no empty batch, or return what nobody looked at.
        return all(map(has_form, args, self.signature.forms)) and all(map(len, args))

    def inputs(self, inputs: Inputs) -> list[Any]:
        """Return the inputs of the graph among those of a call that is of this kind."""
        leaves = tree_leaves((inputs.args, inputs.keywords))
        return [leaves[place] for place in self.places]


def made_up(kind: Kind, device: torch.device) -> tuple[Tensor, ...]:
    """Return inputs of a graph without an example: random numbers, and zeros where numbers are indices.

    Args:
        kind: Of the inputs.
        device: Of the graph.
    """
    generator, found = torch.Generator().manual_seed(0), list[Tensor]()
    for place in kind.places:
        form = kind.signature.forms[place]
        assert isinstance(form, tuple)
        dtype, sizes = form
        # Two samples, so that they may differ.
        shape = [2 if size is None else size for size in sizes]
        if dtype.is_floating_point:
            found.append(torch.randn(shape, generator=generator).to(device, dtype))
        else:
            # Any vocabulary has an entry 0, and a mask must leave something.
            found.append(torch.full(shape, int(dtype is torch.bool), dtype=dtype, device=device))
    return tuple(found)


def has_free_batch(kind: Kind) -> tuple[bool, ...]:
    """Return of each input of a graph whether its axis 0 is a batch of any size."""
    found = list[bool]()
    for place in kind.places:
        form = kind.signature.forms[place]
        found.append(isinstance(form, tuple) and bool(form[1]) and form[1][0] is None)
    return tuple(found)


def takes_any_batch(signature: Signature) -> bool:
    """Return whether the network takes batches of any size."""
    shapes = [form[1] for form in signature.forms if isinstance(form, tuple)]
    return any(sizes and sizes[0] is None for sizes in shapes)


def add_inputs(
    builder: GraphBuilder, signature: Signature, forward: Callable[..., Any], example: Inputs
) -> tuple[Kind, list[Any]]:
    """Add the inputs of a call to a graph, in the order and with the names of the network's `forward`."""
    named = input_names(forward, example)
    leaves: list[Any] = tree_leaves((example.args, example.keywords))
    chosen = [place for place in _forward_order(named, forward) if isinstance(leaves[place], Tensor)]
    for place in chosen:
        leaves[place] = builder.input(named[place])
    in_order = chosen == list(range(len(leaves))) and not example.keywords
    plain = in_order and all(isinstance(one, Tensor) for one in example.args)
    # The graph returns the prediction itself; a user's function could not be pickled either.
    bare = replace(signature, returned=None, output=None)
    kind = Kind(bare, tuple(named[place] for place in chosen), tuple(chosen), plain)
    return kind, leaves


def input_names(forward: Callable[..., Any], example: Inputs) -> list[str]:
    """Return a name for each value of a call, from the parameters of the network's `forward`."""
    names = list[str]()
    for parameter, value in _arguments(forward, example):
        leaves = tree_leaves(value)
        # A list of tensors is one argument with several values.
        names += [parameter] if len(leaves) == 1 else [f"{parameter}_{i}" for i in range(len(leaves))]
    return names


def _arguments(forward: Callable[..., Any], example: Inputs) -> list[tuple[str, Any]]:
    """Return the arguments of a call with the names of the parameters that take them."""
    parameters = _parameters(forward)
    found = list[tuple[str, Any]]()
    for place, value in enumerate(example.args):
        fits = place < len(parameters) and parameters[place].kind is not inspect.Parameter.VAR_POSITIONAL
        found.append((parameters[place].name if fits else f"input_{place}", value))
    found += example.keywords.items()
    return found


def _parameters(forward: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(forward).parameters.values())
    # A function of C has no signature.
    except (TypeError, ValueError):
        return []


def _forward_order(names: Sequence[str], forward: Callable[..., Any]) -> list[int]:
    """Return the positions of values in the order of the parameters of `forward`."""
    known = {parameter.name: place for place, parameter in enumerate(_parameters(forward))}
    return sorted(range(len(names)), key=lambda place: (known.get(names[place], len(known)), place))
