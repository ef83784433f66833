"""Steps: operators of a network with their operands, and the kinds of operators that masks pass."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.fx import Node

from pluribus.mechanisms.graph.operation import Operation
from pluribus.mechanisms.graph.operators import CONVOLUTIONS, DROPOUTS, operator_name
from pluribus.mechanisms.network.torch_private import argument_names
from pluribus.mechanisms.widths.flow import shapes

# How torch.fx names the operator that picks one of several results.
GETITEM = "<built-in function getitem>"


def shape_of(node: Node) -> tuple[int, ...]:
    """Return the shape of a value in the example; of several values, that of the first."""
    found = shapes(node.meta.get("val"))
    return tuple(found[0]) if isinstance(found, list) else tuple(found or ())


class Operand(NamedTuple):
    """A value that an operator takes.

    Attributes:
        name: Name of the argument.
        position: Position of the value in an argument that is a list; else 0.
        node: Node of the value.
    """

    name: str
    position: int
    node: Node


@dataclass(frozen=True, eq=False)
class Step:
    """One operator with its operands."""

    operation: Operation
    operands: tuple[Operand, ...]

    @property
    def node(self) -> Node:
        """Return the operator's node."""
        return self.operation.node

    @property
    def operator(self) -> str:
        """Return the operator's name, without the namespace and the overload."""
        return self.operation.operator

    @property
    def source(self) -> Node:
        """Return the node of the first operand."""
        return self.operands[0].node

    def argument(self, name: str, default: Any = None) -> Any:
        """Return the operator's argument of that name."""
        return self.operation.argument(name, default)

    @property
    def is_product(self) -> bool:
        """Return whether it sums over channels with weights, in one group."""
        if self.operator == "linear":
            return len(shape_of(self.argument("weight"))) == 2
        return self.operator in CONVOLUTIONS and self.argument("groups") == 1 and self._is_batched

    @property
    def _is_batched(self) -> bool:
        # Without a batch axis, axis 0 would be the channels.
        return len(shape_of(self.node)) == len(shape_of(self.argument("weight")))

    @property
    def is_depthwise(self) -> bool:
        """Return whether it is a convolution of each channel by itself."""
        if self.operator not in CONVOLUTIONS or "transpose" in self.operator:
            return False
        weight = shape_of(self.argument("weight"))
        return self.argument("groups") == weight[0] and weight[1] == 1 and self._is_batched

    @property
    def is_idle_dropout(self) -> bool:
        """Return whether it is dropout that is switched off."""
        return self.operator in DROPOUTS and not self.argument("train")

    @property
    def channel_axis(self) -> int:
        """Return the axis of a product's channels, in its output and in its input."""
        return len(shape_of(self.node)) - 1 if self.operator == "linear" else 1


def make_step(node: Node) -> Step:
    """Return the step of a node."""
    operator = operator_name(node)
    # Functions of Python, such as `getitem`, have no schema: their arguments are named by number.
    names = argument_names(node.target)
    arguments: list[tuple[str, Any]] = []
    for number, value in enumerate(node.args):
        arguments.append((names[number] if number < len(names) else str(number), value))
    arguments += node.kwargs.items()
    operands = []
    for name, value in arguments:
        several = value if isinstance(value, list | tuple) else [value]
        for position, one in enumerate(several):
            if isinstance(one, Node):
                operands.append(Operand(name, position, one))
    return Step(Operation(node, operator, "", ""), tuple(operands))
