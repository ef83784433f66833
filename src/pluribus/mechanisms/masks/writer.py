"""Writer: the steps of one member as a module of their own, cut to the channels that are needed."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from pluribus.mechanisms.graph.operators import ORDER_KEEPING, SHAPE_TAKING
from pluribus.mechanisms.masks.axis_rules import merged_axis
from pluribus.mechanisms.masks.demand_rules import demand_of
from pluribus.mechanisms.masks.member_constants import MemberConstants
from pluribus.mechanisms.masks.module_builder import ModuleBuilder
from pluribus.mechanisms.masks.positions import Part, Positions
from pluribus.mechanisms.masks.steps import GETITEM, Step, shape_of
from pluribus.mechanisms.network.torch_private import argument_names

aten = torch.ops.aten


class Writer:
    """Write the steps of a member as a module of their own.

    Args:
        member: Its constants.
        demand: The parts of values that are to be computed.

    Attributes:
        written: New node of each value that is there.
        parts: The part of each value that is there.
    """

    def __init__(self, member: MemberConstants, demand: Mapping[Node, Part]) -> None:
        self.member, self.demand = member, demand
        self.builder = ModuleBuilder(member.device)
        self.written: dict[Node, Node] = {}
        self.parts: dict[Node, Part] = {}

    def enter(self, values: Mapping[Node, Part]) -> None:
        """Take some values as the module's inputs."""
        for node, part in values.items():
            self.written[node] = self.builder.graph.placeholder(node.name)
            self.parts[node] = part

    def write(self, steps: Sequence[Step], results: Sequence[Any]) -> GraphModule:
        """Return the module that runs some steps and computes some results, a list."""
        for step in steps:
            if step.node in self.demand:
                written, part = self._step(step, self.demand[step.node])
                self.written[step.node], self.parts[step.node] = written, part
        return self.builder.finish([self._result(one) for one in results])

    def _result(self, one: Any) -> Any:
        """Return a result as far as it was computed; results may be constants, and plain values."""
        if not isinstance(one, Node):
            return one
        return self.written[one] if one in self.written else self._value(one, None)

    def _step(self, step: Step, part: Part) -> tuple[Node, Part]:
        """Write a step, and return its node with the part of the value that it computes."""
        node = step.node
        if node in self.member.masks:
            return self._masking(step, part), part
        if node in self.member.weights:
            return self._product(step, part), part
        # The product before a folded norm has computed its result.
        if node in self.member.folded:
            return self._fit(step.source, node, part), part
        if step.operator == GETITEM and step.source in self.member.folded:
            return self.written[step.source], self.parts[step.source]
        if step.operator == "sym_size":
            return self.builder.graph.node_copy(node, self.written.__getitem__), None
        if step.operator in ORDER_KEEPING and part is not None:
            return self._reshape(step, part)
        return self._copy(step, part), part

    def _masking(self, step: Step, part: Part) -> Node:
        """Write a product with a mask as a choice of channels; those that it masks are zero if needed."""
        mask, shape = self.member.masks[step.node], shape_of(step.node)
        chosen = mask.chosen if part is None else mask.chosen & part.chosen
        unmasked = Positions(mask.axis, chosen)
        picked = self._fit(step.source, step.node, unmasked)
        return self.builder.fit(picked, shape, unmasked, part)

    def _copy(self, step: Step, part: Part) -> Node:
        """Write a step with its operands cut to what is needed of them."""
        operands = iter(step.operands)

        def cut(node: Node) -> Any:
            # `map_arg` visits operands in the order in which the step lists them.
            operand = next(operands)
            assert operand.node is node
            wanted = None if part is None else demand_of(step, operand, part)
            return self._value(node, wanted)

        arguments, named = map_arg((step.node.args, step.node.kwargs), cut)
        written = self.builder.call(step.node.target, *arguments, **named)
        # A depthwise convolution has as many groups as channels.
        if step.is_depthwise and part is not None:
            _set_argument(written, "groups", part.count)
        return written

    def _reshape(self, step: Step, part: Positions) -> tuple[Node, Part]:
        """Write a reshape of whole channels, which may be more than are needed."""
        axis, repeats = merged_axis(shape_of(step.source), shape_of(step.node), part.axis)
        channels = Positions(axis, part.chosen.view(-1, repeats).any(1))
        there = Positions(part.axis, channels.chosen.repeat_interleave(repeats))
        value = self._value(step.source, channels)
        others = [map_arg(argument, self.written.__getitem__) for argument in step.node.args[1:]]
        if step.operator not in SHAPE_TAKING:
            return self.builder.call(step.node.target, value, *others), there
        sizes: list[Any] = [*others[0]]  # type: ignore[misc]
        sizes[part.axis] = there.count
        # What is picked need not lie in memory as `view` wants it.
        return self.builder.call(aten.reshape.default, value, sizes), there

    def _product(self, step: Step, part: Part) -> Node:
        """Write a product with the columns that it reads, and the rows that are needed of it."""
        weight, bias = self.member.cut_weights(step, part)
        whole, _ = self.member.weights[step.node]
        value = self._value(step.argument("input"), self.member.inputs[step.node])
        # Input, weight and bias come first in the schemas of all products.
        names = argument_names(step.node.target)[3:]
        others = [step.argument(name) for name in names]
        # What was cut is a copy already.
        held = [
            self.builder.hold(weight, copied=weight is not whole),
            None if bias is None else self.builder.hold(bias),
        ]
        return self.builder.call(step.node.target, value, *held, *others)

    def _value(self, node: Node, wanted: Part) -> Any:
        """Return a part of a value: of a constant, of a submodule's graph, or of what was written."""
        if node in self.member.constants:
            return self._constant(node, wanted)
        # A graph of its own, such as that of a `torch.no_grad` region.
        if node.op == "get_attr":
            return self.builder.hold_module(str(node.target), self.member.masked.program.step(node, {}))
        if not isinstance(node.meta.get("val"), Tensor):
            return self.written[node]
        return self._fit(node, node, wanted)

    def _constant(self, node: Node, wanted: Part) -> Any:
        """Return a part of a constant, which may be a plain number."""
        value = self.member.constants[node]
        if not isinstance(value, Tensor):
            return value
        if wanted is not None:
            value = value.index_select(wanted.axis, wanted.index(value.device))
        return self.builder.hold(value)

    def _fit(self, source: Node, node: Node, wanted: Part) -> Node:
        """Return a part of a value that was written; `node` has its shape."""
        return self.builder.fit(self.written[source], shape_of(node), self.parts[source], wanted)


def _set_argument(node: Node, name: str, value: Any) -> None:
    """Replace an argument of a call, given by position or by name."""
    position = argument_names(node.target).index(name)
    if position < len(node.args):
        node.update_arg(position, value)
    else:
        node.update_kwarg(name, value)
