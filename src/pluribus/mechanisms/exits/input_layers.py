"""Input layers: the layers through which the inputs of a network enter, and whether all of them do so."""

import inspect
from collections.abc import Iterator

from torch import nn
from torch.fx import Node
from torch.nn.utils.parametrize import is_parametrized

from pluribus.mechanisms.exits.cut_points import CutPoints, operator
from pluribus.mechanisms.graph.export import layer_of

WIDENED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear, nn.Embedding, nn.RNNBase)
"""Layers that can be made to read several inputs."""


def find_input_layers(cut_points: CutPoints) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """The first layers, the inputs that enter elsewhere, and why several inputs at once are impossible."""
    names = dict.fromkeys(layer_of(node) for node in cut_points.sources)
    origins = _origins(cut_points)
    entering = {
        entry for node in cut_points.sources for one in node.all_input_nodes for entry in origins.get(one, ())
    }
    aside = tuple(
        _name(entry, cut_points.network.module)
        for entry in cut_points.program.entries
        if entry not in entering and entry.users
    )
    problems = [*_layers(cut_points), *_bypasses(cut_points, origins, entering)]
    return tuple(names), aside, problems[0] if problems else ""


def _name(entry: Node, module: nn.Module) -> str:
    """What the network calls an input."""
    kind, _, name = entry.name.partition("_")
    names = list(inspect.signature(module.forward).parameters)
    if kind == "args" and name.isdecimal() and int(name) < len(names):
        return names[int(name)]
    return entry.name.removeprefix("kwargs_")


def _origins(cut_points: CutPoints) -> dict[Node, set[Node]]:
    """By step before the first layers, the inputs it follows from."""
    found: dict[Node, set[Node]] = {entry: {entry} for entry in cut_points.program.entries}
    for node in cut_points.program.steps:
        if node in cut_points.before:
            found[node] = {entry for one in node.all_input_nodes for entry in found.get(one, ())}
    return found


def _layers(cut_points: CutPoints) -> Iterator[str]:
    """What is wrong with the layers that inputs reach first."""
    module = cut_points.network.module
    if not cut_points.sources:
        yield "no layer reads the input"
    owners: dict[int, set[str]] = {}
    for path, layer in module.named_modules():
        for parameter in layer.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(path)
    for node in cut_points.sources:
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
        elif name not in cut_points.shapes:
            yield f"{shown} ({type(layer).__name__}) does not run exactly once"
        elif shared:
            yield f"{shown} ({type(layer).__name__}) shares its weight with {shared[0]}"


def _operators(layer: nn.Module) -> tuple[str, ...]:
    if isinstance(layer, nn.RNNBase):
        return ("lstm", "gru", "rnn_tanh", "rnn_relu")
    if isinstance(layer, nn.Embedding):
        return ("embedding",)
    return ("linear", "conv1d", "conv2d", "conv3d", "convolution")


def _bypasses(cut_points: CutPoints, origins: dict[Node, set[Node]], entering: set[Node]) -> Iterator[str]:
    """Where a value of an input that first layers read gets by them into a later step."""
    for node in [*cut_points.program.entries, *cut_points.program.steps]:
        if node not in cut_points.before or not origins.get(node, set()) & entering:
            continue
        later = [user for user in node.users if user in cut_points.flow and user not in cut_points.sources]
        if later or node in cut_points.results:
            where = layer_of(later[0]) if later else ""
            yield f"the input gets by the first layers into {where or 'the network itself'}"
