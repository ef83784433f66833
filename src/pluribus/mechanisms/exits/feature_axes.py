"""Feature axes: where the features of a value lie, followed through the operators of a network.

Layers tell: a convolution puts channels behind the batch, a linear layer puts features last. Between
layers, the axis moves with permutations and reshapes. Where nothing tells, the rank does.
"""

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.exits.nodes import rank_of, shape_of
from pluribus.mechanisms.graph.operators import has_channels_first, has_features_last, operator_name

# From this rank on a value is taken for an image, channels first; below, for tokens or a vector.
IMAGE_RANK = 4


def resolution(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Return the sizes of all axes but batch and features."""
    features = axis % len(shape)
    return tuple(size for place, size in enumerate(shape) if place not in (0, features))


def feature_axis(shape: Sequence[int], known: int | None) -> int:
    """Return where features lie: the axis that operators told, else the usual one of that rank.

    The last axis is always -1, so that equal layouts compare equal.
    """
    rank = len(shape)
    if known is None:
        known = 1 if rank >= IMAGE_RANK else -1
    # A vector has nothing but features, whatever a convolution before it said.
    if rank < 3 or known % rank == rank - 1:
        return -1
    return known % rank


def find_feature_axes(nodes: Iterable[Node]) -> dict[Node, int | None]:
    """Map each of some nodes, in the order of steps, to the axis of its features; None where unknown."""
    found: dict[Node, int | None] = {}
    for node in nodes:
        found[node] = _axis(node, found)
    return found


def _axis(node: Node, found: Mapping[Node, int | None]) -> int | None:
    name, value = operator_name(node), node.meta.get("val")
    if has_channels_first(name):
        return 1
    if has_features_last(name):
        return -1
    operands = [one for one in node.all_input_nodes if one in found]
    if not isinstance(value, Tensor) or not operands:
        return None
    source = operands[0]
    known = found[source]
    # The operand holds several results, as an LSTM's does, and this is one of them.
    if not rank_of(source):
        return known
    if known is None:
        return _axis_of_others(operands, value.ndim, found)
    return _moved_axis(node, source, known % rank_of(source))


def _axis_of_others(operands: Iterable[Node], rank: int, found: Mapping[Node, int | None]) -> int | None:
    """Return the first known axis of the operands that have the result's rank."""
    for one in operands:
        if rank_of(one) == rank and found[one] is not None:
            return found[one]
    return None


def _moved_axis(node: Node, source: Node, axis: int) -> int | None:
    """Return where an operator moves an axis of its operand to."""
    name, value = operator_name(node), node.meta["val"]
    rank = rank_of(node)
    if name == "permute":
        order = [one % rank for one in node.args[1]]  # type: ignore[union-attr,operator]
        return order.index(axis)
    if name == "transpose":
        one, other = (int(str(place)) % rank for place in node.args[1:3])
        return {one: other, other: one}.get(axis, axis)
    # Any other operator that keeps the rank keeps the order of axes too.
    if rank == rank_of(source):
        return axis
    return _reshaped_axis(shape_of(source.meta["val"]), shape_of(value), axis)


def _reshaped_axis(before: Sequence[int], after: Sequence[int], axis: int) -> int | None:
    """Return where an axis lies after a change of rank; None where its size is found neither way."""
    if not after:
        return None
    # Features last stay last: tokens of an image are flattened before them.
    if axis == len(before) - 1 and before[-1] == after[-1]:
        return -1
    # Channels keep their place in front of the axes that were merged or averaged.
    if axis < len(after) and before[axis] == after[axis]:
        return axis
    return None
