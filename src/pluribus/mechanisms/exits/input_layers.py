"""Input layers: the layers through which the inputs of a network enter, and whether all of them do so."""

import inspect
from typing import NamedTuple

from torch import nn
from torch.fx import Node
from torch.nn.utils.parametrize import is_parametrized

from pluribus.mechanisms.exits.data_flow import DataFlow
from pluribus.mechanisms.graph.operation import layer_of
from pluribus.mechanisms.graph.operators import RECURRENT, operator_name

# Operators of the layers that can be made to read several inputs. A layer that exports as another operator
# runs code of the user's, which widening would change.
PLAIN_OPERATORS = ("linear", "conv1d", "conv2d", "conv3d", "convolution")
OPERATORS: dict[type[nn.Module], tuple[str, ...]] = {
    nn.Linear: PLAIN_OPERATORS,
    nn.Conv1d: PLAIN_OPERATORS,
    nn.Conv2d: PLAIN_OPERATORS,
    nn.Conv3d: PLAIN_OPERATORS,
    nn.Embedding: ("embedding",),
    nn.RNNBase: tuple(RECURRENT),
}


class InputLayers(NamedTuple):
    """The layers through which inputs enter a network.

    Attributes:
        names: The layers, in the order in which they run.
        aside: The inputs that enter behind these layers, such as masks.
        refusal: Why the network cannot take several inputs at once; empty where it can.
    """

    names: tuple[str, ...]
    aside: tuple[str, ...]
    refusal: str


def find_input_layers(flow: DataFlow) -> InputLayers:
    """Find the first layers of a network, and why they cannot be widened."""
    names = dict.fromkeys(layer_of(node) for node in flow.sources)
    origins = _origins(flow)
    entering: set[Node] = set()
    for node in flow.sources:
        for operand in node.all_input_nodes:
            entering |= origins.get(operand, set())
    aside = []
    for entry in flow.program.entries:
        if entry not in entering and entry.users:
            aside.append(_name(entry, flow.network.module))
    refusal = _why_not_widened(flow) or _why_bypassed(flow, origins, entering)
    return InputLayers(tuple(names), tuple(aside), refusal)


def _name(entry: Node, module: nn.Module) -> str:
    """Return what the network calls an input.

    The exported root takes `*args` and `**kwargs`, so that its inputs are named `args_0` and `kwargs_mask`.
    """
    kind, _, name = entry.name.partition("_")
    names = list(inspect.signature(module.forward).parameters)
    if kind == "args" and name.isdecimal() and int(name) < len(names):
        return names[int(name)]
    return entry.name.removeprefix("kwargs_")


def _origins(flow: DataFlow) -> dict[Node, set[Node]]:
    """Map each step before the first layers to the inputs it follows from."""
    found: dict[Node, set[Node]] = {entry: {entry} for entry in flow.program.entries}
    for node in flow.program.steps:
        if node in flow.before:
            inputs = [found.get(one, set()) for one in node.all_input_nodes]
            found[node] = set[Node]().union(*inputs)
    return found


def _why_not_widened(flow: DataFlow) -> str:
    """Return why one of the first layers cannot read several inputs; empty where all can."""
    if not flow.sources:
        return "no layer reads the input"
    owners = _owners(flow.network.module)
    for node in flow.sources:
        name = layer_of(node)
        layer = flow.network.module.get_submodule(name)
        shown = f"{name or 'the network itself'} ({type(layer).__name__})"
        problem = _why_unfit(layer, operator_name(node), shown)
        if not problem and name not in flow.shapes:
            problem = f"{shown} does not run exactly once"
        # A tied weight would be widened for its other reader too.
        shared = _sharing(layer, name, owners)
        if not problem and shared:
            problem = f"{shown} shares its weight with {shared[0]}"
        if problem:
            return problem
    return ""


def _why_unfit(layer: nn.Module, called: str, shown: str) -> str:
    """Return why a layer of this kind cannot be widened; empty where it can."""
    if called not in _operators(layer):
        return f"{shown} computes {called} with parameters of its own"
    # The weight is the result of other parameters (weight norm), which would have to be widened instead.
    if is_parametrized(layer):
        return f"the weight of {shown} is computed"
    # Each group reads its own channels, so that inputs side by side would meet other weights.
    if getattr(layer, "groups", 1) != 1:
        return f"{shown} has groups={layer.groups}"
    # Rows are scaled to a norm when they are read; their mean has another norm than each of them.
    if getattr(layer, "max_norm", None) is not None:
        return f"{shown} has max_norm={layer.max_norm}"
    return ""


def _operators(layer: nn.Module) -> tuple[str, ...]:
    for kind, operators in OPERATORS.items():
        if isinstance(layer, kind):
            return operators
    return ()


def _owners(module: nn.Module) -> dict[int, set[str]]:
    """Map the id of each parameter to the names of the layers that hold it."""
    owners: dict[int, set[str]] = {}
    for path, layer in module.named_modules():
        for parameter in layer.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(path)
    return owners


def _sharing(layer: nn.Module, name: str, owners: dict[int, set[str]]) -> list[str]:
    """Return the names of the other layers that hold a parameter of this one."""
    found: list[str] = []
    for parameter in layer.parameters(recurse=False):
        found += owners[id(parameter)] - {name}
    return found


def _why_bypassed(flow: DataFlow, origins: dict[Node, set[Node]], entering: set[Node]) -> str:
    """Return where an input that first layers read gets by them into a later step; empty where it does not.

    Behind the first layers one value stands for all slots, and an input is of one slot alone.
    """
    for node in [*flow.program.entries, *flow.program.steps]:
        if node not in flow.before or origins.get(node, set()).isdisjoint(entering):
            continue
        later = [user for user in flow.users(node) if user not in flow.sources]
        if later:
            return f"the input gets by the first layers into {layer_of(later[0]) or 'the network itself'}"
        if node in flow.results:
            return "the input gets by the first layers into the network itself"
    return ""
