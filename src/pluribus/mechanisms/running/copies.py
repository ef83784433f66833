"""Copies: which versions of a value may be copied to a stack, to be computed together."""

from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.operators import CONVOLUTIONS, operator_name
from pluribus.mechanisms.running.executor import Task, by_position

LARGE = 1 << 20
"""Bytes of one version from which on versions are not copied to a stack: that costs more than it saves."""

IMAGE_AXES = 4
IMAGES = 1 << 16
"""The same for images of rows that have nothing in common any more, where a stack saves calls alone. With one
limit for all values, four packed members of the small CNN took 2.23 times the plain network for 32 samples
with stacks up to 1 MB, 2.05 up to 256 kB and 1.88 up to 64 kB; 2.32, 2.28 and 2.22 times for one sample."""


def is_too_large(task: Task, data: Node, like: Tensor) -> bool:
    """Return whether versions of the data would have to be copied to a stack, and are too large for it."""
    if data not in task.varying or like.nbytes <= most_copied(task, like):
        return False
    return not (_is_stacked(task) or _is_outweighed(task, data, like))


def _is_outweighed(task: Task, data: Node, like: Tensor) -> bool:
    """Return whether all versions meet one weight that is larger than a sample of the data.

    Reading such a weight once for all versions spares more than copying them once costs.
    """
    weights = [task.like(node) for node in task.pieces if node is not data and node not in task.varying]
    if task.varying != [data] or operator_name(task.node) not in CONVOLUTIONS:
        return False
    return any(weight.nbytes * len(like) > like.nbytes for weight in weights if isinstance(weight, Tensor))


def most_copied(task: Task, like: Tensor) -> int:
    """Return the bytes of a version up to which versions are copied to a stack."""
    return IMAGES if task.apart and like.ndim >= IMAGE_AXES else LARGE


def _is_stacked(task: Task) -> bool:
    """Return whether the versions of all arguments lie on stacks, in one order, so that nothing is copied.

    Constants are stacked when a graph is made, and not in every run.
    """
    order = by_position(task.pieces[task.varying[0]])
    for argument in task.varying:
        pieces = task.pieces[argument]
        if task.executor.batches_weights and all(isinstance(piece.whole, Tensor) for piece in pieces):
            continue
        whole, count = pieces[0].whole, pieces[0].count
        places = [pieces[index].position for index in order]
        if any(piece.whole is not whole for piece in pieces) or places != list(range(count)):
            return False
    return True
