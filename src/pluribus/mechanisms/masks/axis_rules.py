"""Axis rules: the demand of operators that move, merge or join axes on their operands."""

import math
from collections.abc import Callable, Sequence

from pluribus.mechanisms.graph.operators import CONCATENATIONS, ORDER_KEEPING, PADS, PLAIN_REDUCTIONS
from pluribus.mechanisms.masks.positions import MustBeWhole, Part, Positions
from pluribus.mechanisms.masks.steps import Step, shape_of


def _reduction(step: Step, position: int, size: Sequence[int], part: Positions) -> Part:
    axes = step.argument("dim")
    # A reduction over all axes has no parts, and one with several results (`max`) has no single shape.
    if axes in (None, []) or isinstance(step.node.meta["val"], tuple | list):
        raise MustBeWhole
    several = axes if isinstance(axes, list | tuple) else [axes]
    reduced = {axis % len(size) for axis in several}
    if len(shape_of(step.node)) == len(size):
        return None if part.axis in reduced else part
    # Axes that are left move up into the places of those that are gone.
    left = [axis for axis in range(len(size)) if axis not in reduced]
    return Positions(left[part.axis], part.chosen)


def _permute(step: Step, position: int, size: Sequence[int], part: Positions) -> Part:
    order = list(range(len(size)))
    if step.operator == "permute":
        order = [axis % len(size) for axis in step.argument("dims")]
    else:
        one, other = step.argument("dim0"), step.argument("dim1")
        order[one], order[other] = order[other], order[one]
    return Positions(order[part.axis], part.chosen)


def _reshape(step: Step, position: int, size: Sequence[int], part: Positions) -> Part:
    axis, repeats = merged_axis(size, shape_of(step.node), part.axis)
    # A position of the operand is needed if any of the entries that come of it is.
    return Positions(axis, part.chosen.view(-1, repeats).any(1))


def merged_axis(before: Sequence[int], after: Sequence[int], axis: int) -> tuple[int, int]:
    """Return the axis that a reshape makes `axis` of, and how many entries come of each of its positions.

    Raises:
        MustBeWhole: `axis` is made of no axis of `before`, neither alone nor with those that follow it.
    """
    outer, size = math.prod(after[:axis]), after[axis]
    for start, length in enumerate(before):
        # As many numbers must lie in front of the axis before and after, or positions would mix.
        if length <= 1 or math.prod(before[:start]) != outer:
            continue
        for end in range(start + 1, len(before) + 1):
            if math.prod(before[start:end]) == size:
                return start, size // length
    raise MustBeWhole


def _cat(step: Step, position: int, size: Sequence[int], part: Positions) -> Part:
    axis = step.argument("dim", 0) % len(size)
    if axis != part.axis:
        return part
    # Each operand has its own stretch of the result.
    sizes = [shape_of(node)[axis] for node in step.argument("tensors")]
    start = sum(sizes[:position])
    return Positions(axis, part.chosen[start : start + sizes[position]])


def _select(step: Step, position: int, size: Sequence[int], part: Positions) -> Part:
    # Axes behind the one that is gone were one place further.
    gone = step.argument("dim") % len(size)
    return Positions(part.axis + (part.axis >= gone), part.chosen)


def _slice(step: Step, position: int, size: Sequence[int], part: Positions) -> Part:
    if step.argument("dim", 0) % len(size) == part.axis:
        raise MustBeWhole
    return part


def _pad(step: Step, position: int, size: Sequence[int], part: Positions) -> Part:
    # `pad` lists two numbers for each axis, from the last axis on.
    first_padded = len(size) - len(step.argument("pad")) // 2
    # Other modes than constants fill an axis with its neighbours.
    constant = (step.argument("mode") or "constant") == "constant"
    if part.axis >= first_padded or not constant:
        raise MustBeWhole
    return part


AXIS_RULES: dict[str, Callable[[Step, int, Sequence[int], Positions], Part]] = {
    **dict.fromkeys(PLAIN_REDUCTIONS, _reduction),
    **dict.fromkeys(("permute", "transpose"), _permute),
    **dict.fromkeys(ORDER_KEEPING, _reshape),
    **dict.fromkeys(CONCATENATIONS, _cat),
    "select": _select,
    "slice": _slice,
    **dict.fromkeys(PADS, _pad),
}
