"""Output tail: the layers that make the output of a network together, such as those of a residual block.

A residual UNet ends with `conv(h) + h`. For several slots its output has as many channels for each of them,
so every layer whose channels reach the sum is repeated:

    role      layers                                  for N slots
    source    a layer that reads shared values        N times its outputs
    inner     a convolution that reads such outputs   N groups, one for each slot
    norm      a norm without parameters               N times its channels

Between them, only operators that treat every channel alike may stand. Everything else is refused.
"""

from dataclasses import dataclass

from torch import nn
from torch.fx import Node
from torch.nn.utils.parametrize import is_parametrized

from pluribus.mechanisms.exits.data_flow import DataFlow
from pluribus.mechanisms.exits.widening import INNER, NORM, SOURCE
from pluribus.mechanisms.graph.operation import layer_of
from pluribus.mechanisms.graph.operators import CONVOLUTIONS, ZERO_AT_ZERO, operator_name
from pluribus.mechanisms.network.torch_private import Convolution

ALIKE = frozenset({*ZERO_AT_ZERO, "dropout", "sigmoid", "softplus", "alias", "detach"})
"""Operators that treat every channel alike."""
INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


@dataclass(frozen=True)
class TailLayer:
    """One layer of the tail.

    Attributes:
        name: Its name.
        role: `source`, `inner` or `norm`.
    """

    name: str
    role: str


def find_output_tail(flow: DataFlow) -> tuple[TailLayer, ...]:
    """Return the layers that make the output together, in the order in which they run, or none."""
    search = _Search(flow)
    if not search.finds_all():
        return ()
    layers = []
    for node in flow.program.steps:
        if node in search.layers:
            layers.append(TailLayer(layer_of(node), search.role(node)))
    # Every slot needs a layer that gives it channels of its own.
    if not any(layer.role == SOURCE for layer in layers):
        return ()
    return tuple(layers)


class _Search:
    """Go back from the output to the layers whose channels reach it.

    Args:
        flow: The data flow of the network.

    Attributes:
        widened: Values that have channels for every slot.
        layers: Calls of layers that are repeated.
    """

    def __init__(self, flow: DataFlow) -> None:
        self.flow = flow
        self.widened: set[Node] = set()
        self.layers: set[Node] = set()

    def module(self, name: str) -> nn.Module:
        """Return a layer by its name."""
        return self.flow.network.module.get_submodule(name)

    def role(self, node: Node) -> str:
        """Return what becomes of a layer."""
        if isinstance(self.module(layer_of(node)), INSTANCE_NORMS):
            return NORM
        return INNER if node.args[0] in self.widened else SOURCE

    def finds_all(self) -> bool:
        """Mark all values that reach the output, and their readers; return whether that is possible."""
        results = list(self.flow.results)
        if len(results) != 1 or not self.widen(results[0]):
            return False
        # A value that is widened must not be read by anybody who expects it as it was.
        for node in self.flow.program.steps:
            readers = self.flow.users(node) if node in self.widened else []
            if not all(self.widen(reader) for reader in readers):
                return False
        # A linear layer has no groups, so that it cannot read several slots apart.
        inner = [node for node in self.layers if self.role(node) == INNER]
        return all(operator_name(node) in CONVOLUTIONS for node in inner)

    def widen(self, node: Node) -> bool:
        """Mark a value and all that it is made of; return whether that is possible."""
        if node in self.widened:
            return True
        # Inputs, constants and parameters have no channels for other slots.
        if node not in self.flow.positions:
            return False
        self.widened.add(node)
        if self._is_layer(node):
            self.layers.add(node)
            return self._can_be_repeated(node)
        operands = [one for one in node.args if isinstance(one, Node)]
        if operator_name(node) == "add":
            return len(operands) == 2 and all(self.widen(one) for one in operands)
        if self._is_plain_norm(node):
            self.layers.add(node)
        elif not self._treats_channels_alike(node):
            return False
        return self.widen(operands[0])

    def _is_layer(self, node: Node) -> bool:
        name = operator_name(node)
        return name in CONVOLUTIONS or name == "linear"

    def _treats_channels_alike(self, node: Node) -> bool:
        name = operator_name(node)
        return name in ALIKE or (name == "prelu" and self._has_one_slope(node))

    def _has_one_slope(self, node: Node) -> bool:
        layer = self.module(layer_of(node))
        return isinstance(layer, nn.PReLU) and layer.num_parameters == 1

    def _is_plain_norm(self, node: Node) -> bool:
        layer = self.module(layer_of(node))
        runs_once = layer_of(node) in self.flow.shapes
        return (
            runs_once
            and isinstance(layer, INSTANCE_NORMS)
            and not layer.affine
            and layer.running_mean is None
        )

    def _can_be_repeated(self, node: Node) -> bool:
        """Return whether a layer runs once, by its own code, with a weight of its own."""
        name = layer_of(node)
        layer = self.module(name)
        plain = isinstance(layer, nn.Linear | Convolution) and not is_parametrized(layer)
        if not plain or name not in self.flow.shapes or getattr(layer, "groups", 1) != 1:
            return False
        own = {id(parameter) for parameter in layer.parameters()}
        for path, part in self.flow.network.module.named_modules():
            if path == name:
                continue
            held = {id(parameter) for parameter in part.parameters(recurse=False)}
            if not own.isdisjoint(held):
                return False
        # A first layer is widened for its inputs already.
        return node not in self.flow.sources
