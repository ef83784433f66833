"""Entrances: the layers through which the inputs of a network enter, and whether all of them do so."""

import inspect
from collections.abc import Iterator

from torch import nn
from torch.fx import Node
from torch.nn.utils.parametrize import is_parametrized

from pluribus.mechanisms.exits.cut_points import Crossings, operator
from pluribus.mechanisms.graph.export import layer_of

WIDENED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.Embedding, nn.RNNBase)
"""Layers that can be made to read several inputs."""


def find_first(crossings: Crossings) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The first layers, the inputs that enter elsewhere, and why several inputs at once are impossible."""
    names = dict.fromkeys(layer_of(node) for node in crossings.sources)
    origins = _origins(crossings)
    entering = {
        entry for node in crossings.sources for one in node.all_input_nodes for entry in origins.get(one, ())
    }
    aside = tuple(
        _name(entry, crossings.network.module)
        for entry in crossings.program.entries
        if entry not in entering and entry.users
    )
    problems = [*_layers(crossings), *_bypasses(crossings, origins, entering)]
    return tuple(names), aside, problems[0] if problems else ""


def _name(entry: Node, module: nn.Module) -> str:
    """What the network calls an input."""
    kind, _, name = entry.name.partition("_")
    names = list(inspect.signature(module.forward).parameters)
    if kind == "args" and name.isdecimal() and int(name) < len(names):
        return names[int(name)]
    return entry.name.removeprefix("kwargs_")


def _origins(crossings: Crossings) -> dict[Node, set[Node]]:
    """By step before the first layers, the inputs it follows from."""
    found: dict[Node, set[Node]] = {entry: {entry} for entry in crossings.program.entries}
    for node in crossings.program.steps:
        if node in crossings.before:
            found[node] = {entry for one in node.all_input_nodes for entry in found.get(one, ())}
    return found


def _layers(crossings: Crossings) -> Iterator[str]:
    """What is wrong with the layers that inputs reach first."""
    module = crossings.network.module
    if not crossings.sources:
        yield "no layer reads the input"
    owners: dict[int, set[str]] = {}
    for path, layer in module.named_modules():
        for parameter in layer.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(path)
    for node in crossings.sources:
        name = layer_of(node)
        layer, shown = module.get_submodule(name), name or "the network itself"
        shared = [one for p in layer.parameters(recurse=False) for one in owners[id(p)] - {name}]
        if not isinstance(layer, WIDENED) or operator(node) not in _operators(layer):
            yield f"{shown} ({type(layer).__name__}) computes {operator(node)} with parameters of its own"
        elif is_parametrized(layer):
            yield f"the weight of {shown} ({type(layer).__name__}) is computed"
        elif getattr(layer, "groups", 1) != 1:
            yield f"{shown} ({type(layer).__name__}) has groups={layer.groups}"
        elif getattr(layer, "max_norm", None) is not None:
            yield f"{shown} ({type(layer).__name__}) has max_norm={layer.max_norm}"
        elif name not in crossings.shapes:
            yield f"{shown} ({type(layer).__name__}) does not run exactly once"
        elif shared:
            yield f"{shown} ({type(layer).__name__}) shares its weight with {shared[0]}"


def _operators(layer: nn.Module) -> tuple[str, ...]:
    if isinstance(layer, nn.RNNBase):
        return ("lstm", "gru", "rnn_tanh", "rnn_relu")
    if isinstance(layer, nn.Embedding):
        return ("embedding",)
    return ("linear", "conv1d", "conv2d", "conv3d", "convolution")


def _bypasses(crossings: Crossings, origins: dict[Node, set[Node]], entering: set[Node]) -> Iterator[str]:
    """Where a value of an input that first layers read gets by them into a later step."""
    for node in [*crossings.program.entries, *crossings.program.steps]:
        if node not in crossings.before or not origins.get(node, set()) & entering:
            continue
        later = [user for user in node.users if user in crossings.flow and user not in crossings.sources]
        if later or node in crossings.results:
            where = layer_of(later[0]) if later else ""
            yield f"the input gets by the first layers into {where or 'the network itself'}"
