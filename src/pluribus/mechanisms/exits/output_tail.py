"""Output tail: the layers that make the output of a network together, such as those of a residual block.

A residual UNet ends with `conv(h) + h`. For several slots its output has as many channels for each of them,
so every layer whose channels reach the sum is repeated:

    role      layers                                  for N slots
    source    a layer that reads shared values        N times its outputs
    inner     a convolution that reads such outputs   N groups, one for each slot
    norm      a norm without parameters               N times its channels

Between them, only operators that treat every channel alike may stand. Everything else is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.fx import Node
from torch.nn.utils.parametrize import is_parametrized

from pluribus.mechanisms.exits.data_flow import DataFlow
from pluribus.mechanisms.graph.export import layer_of
from pluribus.mechanisms.graph.operators import CONVOLUTIONS, ZERO_AT_ZERO, operator_name
from pluribus.mechanisms.network.torch_private import Convolution

SOURCE, INNER, NORM = "source", "inner", "norm"
ALIKE = frozenset({*ZERO_AT_ZERO, "dropout", "sigmoid", "softplus", "alias", "detach"})
"""Operators that treat every channel alike."""
INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


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
    if len(flow.results) != 1 or not search.widen(next(iter(flow.results))):
        return ()
    # A value that is widened must not be read by anybody who expects it as it was: readers are widened too.
    for node in flow.program.steps:
        readers = flow.users(node) if node in search.widened else []
        if not all(search.widen(reader) for reader in readers):
            return ()
    layers = []
    for node in flow.program.steps:
        if node in search.layers:
            layers.append(TailLayer(layer_of(node), search.role(node)))
    roles = [layer.role for layer in layers]
    inner = [layer.name for layer in layers if layer.role == INNER]
    # A linear layer has no groups.
    if SOURCE not in roles or not all(isinstance(search.module(name), Convolution) for name in inner):
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

    def widen(self, node: Node) -> bool:
        """Mark a value and all that it is made of; return whether that is possible."""
        if node in self.widened:
            return True
        # Inputs, constants and parameters have no channels for other slots.
        if node not in self.flow.positions:
            return False
        self.widened.add(node)
        name = operator_name(node)
        operands = [one for one in node.args if isinstance(one, Node)]
        if name == "add":
            return len(operands) == 2 and all(self.widen(one) for one in operands)
        if name in ALIKE or (name == "prelu" and self._has_one_slope(node)):
            return self.widen(operands[0])
        if name == "instance_norm" and self._is_plain_norm(node):
            self.layers.add(node)
            return self.widen(operands[0])
        if name in CONVOLUTIONS or name == "linear":
            self.layers.add(node)
            return self._can_be_repeated(node)
        return False

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


def widen_tail(layer: nn.Module, role: str, slots: int) -> None:
    """Repeat a layer of the tail for every slot; each slot computes what the layer did."""
    _resize(layer, role, [0] * slots, 1)


def keep_tail(layer: nn.Module, role: str, rows: Sequence[int], slots: int) -> None:
    """Keep some slots of a widened layer of the tail, in this order."""
    _resize(layer, role, rows, slots)


def _resize(layer: nn.Module, role: str, rows: Sequence[int], slots: int) -> None:
    """Let a layer for `slots` slots compute these of them."""
    if role == NORM:
        layer.num_features = layer.num_features // slots * len(rows)  # type: ignore[assignment,operator]
        return
    groups = getattr(layer, "groups", 1)
    for name in ("weight", "bias"):
        tensor = getattr(layer, name)
        if tensor is not None:
            kept = _picked(tensor, _output_axis(layer, name, role), rows, slots)
            setattr(layer, name, nn.Parameter(kept, tensor.requires_grad))
    outputs, inputs = (
        ("out_features", "") if isinstance(layer, nn.Linear) else ("out_channels", "in_channels")
    )
    setattr(layer, outputs, getattr(layer, outputs) // slots * len(rows))
    if role == INNER:
        setattr(layer, inputs, getattr(layer, inputs) // slots * len(rows))
        layer.groups = groups // slots * len(rows)  # type: ignore[assignment]


def _output_axis(layer: nn.Module, name: str, role: str) -> int:
    """Return the axis of a tensor along which slots lie."""
    # The weight of a transposed convolution is [inputs, outputs of a group, ...].
    transposed = isinstance(layer, TRANSPOSED) and name == "weight" and role == SOURCE
    return 1 if transposed else 0


@torch.no_grad()
def _picked(tensor: torch.Tensor, axis: int, rows: Sequence[int], slots: int) -> torch.Tensor:
    parts = torch.unflatten(tensor, axis, (slots, -1))
    index = torch.tensor(list(rows), device=tensor.device)
    return parts.index_select(axis, index).flatten(axis, axis + 1).clone()
