"""Suggested exits: the cut points where the structure of a network invites to leave it.

Networks are built of blocks, and blocks of one shape form a stage. Without repeated blocks, a change of
resolution ends a stage; without such a change, every layer is as good as any other.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from pluribus.mechanisms.exits.blocks import find_blocks
from pluribus.mechanisms.exits.cut_points import CutPoint, CutPoints


def suggest_exits(module: nn.Module, cut_points: CutPoints) -> list[CutPoint]:
    """Return the exits that the structure of a network suggests."""
    blocks = find_blocks(module, cut_points.points)
    chosen = _stages(blocks, cut_points) if blocks else _between_layers(cut_points)
    # Outer modules come first in the list: the outermost module that returns a value gives it its name.
    outermost = {one.node: one for one in reversed(cut_points.points)}
    return [outermost[one.node] for one in chosen]


def _stages(blocks: Sequence[CutPoint], cut_points: CutPoints) -> list[CutPoint]:
    """Return every block where all have one shape, else the last of each run of equal shapes."""
    ends = list(blocks)
    several_shapes = len({one.shape for one in blocks}) > 1
    # A plain sequence that repeats is a stage already: the user wrote its blocks into it.
    plain = all(one.kind is nn.Sequential for one in blocks)
    if several_shapes and not plain:
        ends = _ends_of_runs(blocks)
    # An exit with nothing but the classifier behind it would be the network's own output once more.
    if ends and cut_points.only_head_after(ends[-1]):
        ends.pop()
    return ends


def _ends_of_runs(blocks: Sequence[CutPoint]) -> list[CutPoint]:
    """Return the last block of each run of equal shapes."""
    ends = []
    for one, after in pairwise(blocks):
        if after.shape != one.shape:
            ends.append(one)
    return [*ends, blocks[-1]]


def _between_layers(cut_points: CutPoints) -> list[CutPoint]:
    """Return the last cut point before each layer, or the ends of resolutions where they change."""
    last_before: CutPoint | None = None
    each, ends = [], []
    # What the last layer reads and makes leads to the network's own exit.
    for segment in cut_points.segments()[:-2]:
        changed = [one for one in segment.points if one.resolution != segment.resolution]
        if changed:
            # Pooling behind a layer ends the stage.
            ends.append(changed[0])
        elif last_before is not None and last_before.resolution != segment.resolution:
            # A strided layer begins the next stage: the one before ends with what the layer reads.
            ends.append(last_before)
        if segment.points:
            last_before = segment.points[-1]
            each.append(last_before)
    return ends or each
