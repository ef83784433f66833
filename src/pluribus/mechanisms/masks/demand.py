"""Demand: the channels of every value that a prediction needs.

Read backwards through the steps of a network. A product with weights needs the channels of its input that
are not zero, a mask those where it is one, and other operators pass on the demand for their results.
"""

from collections.abc import Iterable, Mapping

from torch.fx import Node

from pluribus.mechanisms.graph.operators import ORDER_KEEPING, ZERO_AT_ZERO
from pluribus.mechanisms.masks.axis_rules import merged_axis
from pluribus.mechanisms.masks.demand_rules import demand_of
from pluribus.mechanisms.masks.positions import MustBeWhole, Part, Positions, at_least_one, rounded_up, union
from pluribus.mechanisms.masks.steps import Step, shape_of


def find_zeros(node: Node, steps: Mapping[Node, Step], masks: Mapping[Node, Positions]) -> Part:
    """Return the positions of a value that are zero because of a mask; None where none is known.

    Args:
        node: The value.
        steps: All steps.
        masks: For every product with a mask, where the mask is one.
    """
    if node in masks:
        return Positions(masks[node].axis, ~masks[node].chosen)
    step = steps.get(node)
    if step is None or not step.operands or not keeps_zeros(step):
        return None
    before = find_zeros(step.source, steps, masks)
    if before is None or step.operator not in ORDER_KEEPING:
        return before
    return _reshaped(before, shape_of(step.source), shape_of(node))


def keeps_zeros(step: Step) -> bool:
    """Return whether positions that are zero in its first operand are zero in its result."""
    return step.operator in ZERO_AT_ZERO | ORDER_KEEPING or step.is_idle_dropout


def _reshaped(part: Positions, before: tuple[int, ...], after: tuple[int, ...]) -> Part:
    """Return where positions lie after a reshape; None where they are not together any more."""
    for axis in range(len(after)):
        try:
            old, repeats = merged_axis(before, after, axis)
        except MustBeWhole:
            continue
        if old == part.axis:
            return Positions(axis, part.chosen.repeat_interleave(repeats))
    return None


def propagate_demand(
    steps: Iterable[Step],
    demand: dict[Node, Part],
    masks: Mapping[Node, Positions],
    inputs: Mapping[Node, Part],
    align: int,
) -> None:
    """Add to `demand` what some steps need of the values before them.

    Args:
        steps: From last to first.
        demand: The parts that are needed of some values; a value that is not in it is not needed.
        masks: For every product with a mask, where the mask is one.
        inputs: For every product with weights, the channels of its input that are not zero.
        align: The number of positions is rounded up to a multiple of it.
    """
    measured: set[Node] = set()
    for step in steps:
        node = step.node
        # A size that is read of a value is that of the whole value.
        if node in measured and node not in demand:
            demand[node] = None
        if node not in demand:
            continue
        if node not in masks:
            demand[node] = _runnable(step, demand[node], align)
        if step.operator == "sym_size":
            measured.add(step.source)
            continue
        demand[node], needs = _needs(step, demand[node], masks, inputs)
        for operand, part in needs:
            demand[operand] = union(demand[operand], part) if operand in demand else part


def _runnable(step: Step, part: Part, align: int) -> Part:
    """Return a part that an operator runs on, and runs fast on."""
    part = at_least_one(part)
    # A reshape has whole channels alone: its operand is rounded.
    return part if step.operator in ORDER_KEEPING else rounded_up(part, align)


def _needs(
    step: Step, part: Part, masks: Mapping[Node, Positions], inputs: Mapping[Node, Part]
) -> tuple[Part, list[tuple[Node, Part]]]:
    """Return the part of a step that is computed, and the parts that it needs of its operands."""
    node = step.node
    if node in inputs:
        # Rows of a weight make channels: along any other axis the result is whole.
        along_channels = part is None or part.axis == step.channel_axis
        return part if along_channels else None, [(step.source, inputs[node])]
    if node in masks:
        mask = masks[node]
        if part is None or part.axis != mask.axis:
            return None, [(step.source, mask)]
        return part, [(step.source, Positions(mask.axis, mask.chosen & part.chosen))]
    whole: list[tuple[Node, Part]] = [(operand.node, None) for operand in step.operands]
    if part is None:
        return None, whole
    try:
        return part, [(operand.node, demand_of(step, operand, part)) for operand in step.operands]
    except MustBeWhole:
        return None, whole
