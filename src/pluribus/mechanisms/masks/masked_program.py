"""Masked program: the steps of a network, split at its masks."""

from torch.fx import Node

from pluribus.mechanisms.graph.operators import is_random
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.masks.steps import Step, make_step


class MaskedProgram:
    """The steps of a network with masks among its tensors.

    Args:
        program: All steps.
        masks: Names of the masks.

    Attributes:
        program: All steps.
        constant: The nodes that no input reaches, in order; each has one value for each member.
        steps: The other steps, by node, in order.
        trunk: Those that no mask reaches: members share them.
        tail: Those that a mask reaches.
        maskings: The steps of the tail that multiply a value by a mask, by node.
    """

    def __init__(self, program: Program, masks: frozenset[str]) -> None:
        self.program = program
        self.constant = _constant_nodes(program)
        constant = set(self.constant)
        self.steps: dict[Node, Step] = {}
        for node in program.steps:
            if node not in constant and node.op == "call_function":
                self.steps[node] = make_step(node)
        behind = program.depends_on(list(masks))
        self.trunk = [step for step in self.steps.values() if step.node not in behind]
        self.tail = [step for step in self.steps.values() if step.node in behind]
        masks_and_views = self._masks_and_views(masks)
        self.maskings = {step.node: step for step in self.tail if _is_masking(step, masks_and_views)}

    def _masks_and_views(self, masks: frozenset[str]) -> set[Node]:
        """Return the masks, and what is computed from them alone: a mask is reshaped to fit images."""
        found = {node for node, name in self.program.held.items() if name in masks}
        for node in self.constant:
            if not found.isdisjoint(node.all_input_nodes):
                found.add(node)
        return found


def _constant_nodes(program: Program) -> list[Node]:
    """Return the steps that no input reaches, in order."""
    reached = set(program.entries)
    constant = []
    for node in program.steps:
        # Random numbers are new in each call, and follow from no input.
        if is_random(node.target) or not reached.isdisjoint(node.all_input_nodes):
            reached.add(node)
        elif node.op == "call_function":
            constant.append(node)
    return constant


def _is_masking(step: Step, masks: set[Node]) -> bool:
    """Return whether a step multiplies a value by a mask along one of its axes."""
    if step.operator != "mul":
        return False
    value, factor = step.node.args[:2]
    return factor in masks and value not in masks
