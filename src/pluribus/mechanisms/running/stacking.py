"""Stacking: one operator for several versions of a value.

Versions lie on a new first axis, `[versions, ...]`. Three kinds of operators run on such a stack: those
that do the same to every number, those that change the shape of each version alone, and those that treat
every entry of axis 0 alike, into which versions are folded, once for each version of their weights. All
others run version by version. Options of a layer that read one value are not joined to one wide layer.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from pluribus.mechanisms.graph.export import Operation
from pluribus.mechanisms.graph.operators import BATCH_RANKS, RESHAPES, is_pointwise, operator_name
from pluribus.mechanisms.graph.program import Program

LARGE = 1 << 20
"""Bytes of one version from which on versions run one by one: there stacking copies more than it saves."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One version of a value: the value itself, or its position in a stack."""

    whole: Any
    position: int | None = None

    @property
    def value(self) -> Any:
        """The version alone."""
        return self.whole if self.position is None else self.whole[self.position]


Values = Mapping[Node, Mapping[int, Piece]]
Pieces = Mapping[Node, Sequence[Piece]]
Rule = Callable[[Node, Pieces, Sequence[Node]], list[Piece]]


def together(pieces: Sequence[Piece]) -> Tensor:
    """Several versions as one tensor, `[versions, ...]`; copied only if they do not lie so already."""
    whole, positions = pieces[0].whole, [piece.position for piece in pieces]
    if positions[0] is None or any(piece.whole is not whole for piece in pieces):
        if len(pieces) == 1:
            return pieces[0].value.unsqueeze(0)  # type: ignore[no-any-return]
        return torch.stack([piece.value for piece in pieces])
    start = positions[0]
    if positions == list(range(start, start + len(positions))):
        return whole[start : start + len(positions)]  # type: ignore[no-any-return]
    return whole.index_select(0, torch.tensor(positions, device=whole.device))  # type: ignore[no-any-return]


def compute(
    program: Program, node: Node, count: int, reads: Mapping[Node, Sequence[int]], values: Values
) -> list[Piece]:
    """Several versions of a step's value.

    Args:
        program: Whose step it is.
        node: The step.
        count: How many versions.
        reads: By argument, the version that each of them is computed from.
        values: The values that are there.
    """
    pieces = {argument: [values[argument][version] for version in read] for argument, read in reads.items()}
    varying = [argument for argument, read in reads.items() if len(set(read)) > 1]
    rule = _rule(node, pieces, varying) if varying else None
    if rule is not None:
        return rule(node, pieces, varying)
    return [
        Piece(program.step(node, {argument: read[index].value for argument, read in pieces.items()}))
        for index in range(count)
    ]


def _rule(node: Node, pieces: Pieces, varying: Sequence[Node]) -> Rule | None:
    """How the versions of a step are computed together; None where they are not."""
    operator = operator_name(node)
    data = node.args[0] if node.args and isinstance(node.args[0], Node) else varying[0]
    first = pieces[data][0].value
    if not isinstance(first, Tensor) or (data in varying and first.nbytes > LARGE):
        return None
    if operator in BATCH_RANKS:
        return _folded if data not in node.args[1:] and _fits(node, operator, first) else None
    if not all(_has_axes(pieces[one][0].value) for one in varying):
        return None
    if is_pointwise(node.target):
        return _pointwise
    if operator == "dropout" and not Operation(node, operator, "", "").argument("train"):
        return _pointwise
    return _reshaped if node.target in RESHAPES and data in varying else None


def _has_axes(value: Any) -> bool:
    """Whether a value is a tensor and no single number, whose precision would count for less."""
    return isinstance(value, Tensor) and value.ndim > 0


def _fits(node: Node, operator: str, data: Tensor) -> bool:
    """Whether the operator runs on a batch, and treats its samples alike."""
    operation = Operation(node, operator, "", "")
    if operator == "layer_norm":
        return data.ndim > len(operation.argument("normalized_shape"))
    if operator in ("batch_norm", "linear", "group_norm"):
        return data.ndim >= BATCH_RANKS[operator] and not operation.argument("training", False)
    return data.ndim == BATCH_RANKS[operator]


def _pointwise(node: Node, pieces: Pieces, varying: Sequence[Node]) -> list[Piece]:
    order = _by_position(pieces[varying[0]])
    firsts = [read[0].value for read in pieces.values()]
    axes = max(first.ndim for first in firsts if isinstance(first, Tensor))

    def argument(of: Node) -> Any:
        if of not in varying:
            return pieces[of][0].value
        stack = together([pieces[of][index] for index in order])
        return stack.reshape(len(order), *[1] * (axes - stack.ndim + 1), *stack.shape[1:])

    return _pieces(_call(node, argument), order)


def _reshaped(node: Node, pieces: Pieces, varying: Sequence[Node]) -> list[Piece]:
    (data,) = varying
    order = _by_position(pieces[data])
    stack = together([pieces[data][index] for index in order])
    operation = Operation(node, "", "", "")
    if (sizes := operation.argument("size", operation.argument("shape"))) is not None:
        sizes = map_arg(tuple(sizes), lambda of: pieces[of][0].value)
        return _pieces(stack.reshape(len(order), *sizes), order)
    ends = [operation.argument(name) for name in ("start_dim", "end_dim")]
    return _pieces(stack.flatten(*(axis + (axis >= 0) for axis in ends)), order)


def _folded(node: Node, pieces: Pieces, varying: Sequence[Node]) -> list[Piece]:
    data, *weights = pieces
    groups = defaultdict[tuple[int, ...], list[int]](list)
    for index in _by_position(pieces[data]):
        groups[tuple(id(pieces[weight][index]) for weight in weights)].append(index)
    outputs = []
    for group in groups.values():
        stack = together([pieces[data][index] for index in group])
        folded = {weight: pieces[weight][group[0]].value for weight in weights} | {data: stack.flatten(0, 1)}
        outputs.append(_call(node, folded.__getitem__).unflatten(0, stack.shape[:2]))
    order = [index for group in groups.values() for index in group]
    if len(outputs) == 1 or outputs[0][0].nbytes <= LARGE:
        return _pieces(outputs[0] if len(outputs) == 1 else torch.cat(outputs), order)
    apart = [Piece(output, position) for output in outputs for position in range(len(output))]
    return [apart[place] for place in _inverse(order)]


def _call(node: Node, argument: Callable[[Node], Any]) -> Any:
    arguments, named = map_arg((node.args, node.kwargs), argument)
    return node.target(*arguments, **named)  # type: ignore[operator]


def _by_position(pieces: Sequence[Piece]) -> list[int]:
    """The order in which versions lie in memory."""
    wholes = {id(piece.whole): place for place, piece in reversed(list(enumerate(pieces)))}
    places = [(wholes[id(piece.whole)], piece.position or 0) for piece in pieces]
    return sorted(range(len(pieces)), key=places.__getitem__)


def _pieces(stack: Tensor, order: Sequence[int]) -> list[Piece]:
    """The versions on a stack, which lie there in this order."""
    return [Piece(stack, place) for place in _inverse(order)]


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)
