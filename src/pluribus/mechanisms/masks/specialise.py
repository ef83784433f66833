"""Specialise: members cut out of a masked network, each with only the channels that it needs.

A mask is no product any more but a choice of channels. Weights lose the rows and columns that nothing needs,
norms become part of the layer before them, and the steps that no mask reaches are computed once for all
members. A value that several layers read, such as a residual stream, keeps every channel that one of them
needs, and each of them picks its own.
"""

from collections.abc import Iterable, Mapping

from torch import Tensor
from torch.fx import GraphModule, Node

from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.masks.masked_program import MaskedProgram
from pluribus.mechanisms.masks.member_constants import MemberConstants
from pluribus.mechanisms.masks.positions import Part, union
from pluribus.mechanisms.masks.writer import Writer


class Specialiser:
    """Cut members out of a masked network.

    Args:
        program: The network's steps; its masks are among its tensors.
        masks: Names of the masks.
        align: Widths from 32 on are rounded up to a multiple of it.
    """

    def __init__(self, program: Program, masks: Iterable[str], align: int) -> None:
        self.program, self.align = program, align
        self.masked = MaskedProgram(program, frozenset(masks))

    def member(self, values: Mapping[str, Tensor]) -> GraphModule:
        """Return the member with these tensors, from the inputs to the results."""
        constants = MemberConstants(self.masked, values, self.align)
        demand = self._demand_of_tail(constants)
        demand = constants.propagate(self.masked.trunk, demand)
        writer = Writer(constants, demand)
        writer.enter(dict.fromkeys(self.program.entries))
        return writer.write([*self.masked.trunk, *self.masked.tail], self.program.results)

    def members(self, rows: Iterable[Mapping[str, Tensor]]) -> tuple[GraphModule, list[GraphModule]]:
        """Return the trunk that all members share, and for each member the tail from there to the results."""
        constants = [MemberConstants(self.masked, values, self.align) for values in rows]
        demands = [self._demand_of_tail(one) for one in constants]
        # Nothing before the masks tells members apart: the constants of any of them will do.
        demand = constants[0].propagate(self.masked.trunk, self._common(demands))
        trunk = Writer(constants[0], demand)
        trunk.enter(dict.fromkeys(self.program.entries))
        border = self._border()
        first = trunk.write(self.masked.trunk, border)
        there = {node: trunk.parts[node] for node in border}
        tails = []
        for one, demand in zip(constants, demands, strict=True):
            tail = Writer(one, demand)
            tail.enter(there)
            tails.append(tail.write(self.masked.tail, self.program.results))
        return first, tails

    def _demand_of_tail(self, constants: MemberConstants) -> dict[Node, Part]:
        """Return what a member needs of its tail, and of the values that the tail reads."""
        results = self.program.reads(self.program.results)
        return constants.propagate(self.masked.tail, dict.fromkeys(results))

    def _common(self, demands: Iterable[Mapping[Node, Part]]) -> dict[Node, Part]:
        """Return what the tails of all members together need of the trunk."""
        tail = {step.node for step in self.masked.tail}
        common: dict[Node, Part] = {}
        for demand in demands:
            for node, part in demand.items():
                if node not in tail:
                    common[node] = union(common[node], part) if node in common else part
        return common

    def _border(self) -> list[Node]:
        """Return the inputs and values of the trunk that tails, or the results, read."""
        reads = set(self.program.reads(self.program.results))
        for step in self.masked.tail:
            reads.update(step.node.all_input_nodes)
        available = [*self.program.entries, *(step.node for step in self.masked.trunk)]
        return [node for node in available if node in reads]
