"""Demand rules: the part of an operand that makes a part of an operator's result.

Each rule follows one axis. An operator without a rule needs all of its operands, and is computed whole: that
is slower and never wrong.
"""

import re
from collections.abc import Sequence

from pluribus.mechanisms.graph.operators import (
    CHANNELWISE,
    COPIES,
    MIXES,
    UNTAGGED_POINTWISE,
    is_pointwise,
    is_random,
    is_spatial,
)
from pluribus.mechanisms.masks.axis_rules import AXIS_RULES
from pluribus.mechanisms.masks.positions import MustBeWhole, Part, Positions
from pluribus.mechanisms.masks.steps import GETITEM, Operand, Step, shape_of

# Names of the argument that holds the values, besides those that hold numbers for channels.
VALUES = ("input", "self")


def demand_of(step: Step, operand: Operand, part: Positions) -> Part:
    """Return the part of an operand that makes some positions of a step's result.

    Raises:
        MustBeWhole: the step has no parts along that axis.
    """
    size = shape_of(operand.node)
    if step.operator == GETITEM:
        return _one_of_several(step, operand, part)
    if _is_pointwise(step):
        return _pointwise(step, size, part)
    if step.operator in CHANNELWISE or step.is_depthwise:
        return _channelwise(operand.name, size, part)
    if is_spatial(step.operator):
        return _spatial(step, size, part)
    rule = AXIS_RULES.get(step.operator)
    if rule is None:
        raise MustBeWhole
    return rule(step, operand.position, size, part)


def _one_of_several(step: Step, operand: Operand, part: Positions) -> Part:
    # The first result of a batch norm has the channels of its input. Other operators with several results
    # would need a rule for each of them.
    if step.node.args[1] != 0 or "batch_norm" not in str(operand.node.target):
        raise MustBeWhole
    return part


def _is_pointwise(step: Step) -> bool:
    """Return whether each number of the result follows from the numbers at its own position."""
    target = step.node.target
    # Some operators that torch tags as pointwise read neighbours.
    if step.operator in MIXES:
        return False
    # Noise on some channels would be other noise than on all of them.
    if is_random(target) and not step.is_idle_dropout:
        return False
    return is_pointwise(target) or step.operator in COPIES | UNTAGGED_POINTWISE


def _pointwise(step: Step, size: Sequence[int], part: Positions) -> Part:
    # Operands are broadcast: axes are counted from the end, and an axis of size 1 serves all positions.
    axis = part.axis - (len(shape_of(step.node)) - len(size))
    if axis < 0 or size[axis] == 1:
        return None
    return Positions(axis, part.chosen)


def _channelwise(name: str, size: Sequence[int], part: Positions) -> Part:
    # Along any other axis the operator mixes: instance norm averages over it.
    if part.axis != 1:
        raise MustBeWhole
    if name in VALUES:
        return part
    # PReLU may have one slope for all channels.
    return None if size[0] == 1 else Positions(0, part.chosen)


def _spatial(step: Step, size: Sequence[int], part: Positions) -> Part:
    # Pools and upsampling work on each channel by itself. Without a batch axis, axis 1 would be a dimension
    # of the image.
    dimensions = re.search(r"(\d)d", step.operator)
    if part.axis != 1 or dimensions is None or len(size) != int(dimensions[1]) + 2:
        raise MustBeWhole
    return part
