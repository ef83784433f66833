"""Stacking: run one operator for several versions of a value.

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
        """Return the version alone."""
        if self.position is None:
            return self.whole
        return self.whole[self.position]


Values = Mapping[Node, Mapping[int, Piece]]
Pieces = Mapping[Node, Sequence[Piece]]
Rule = Callable[[Node, Pieces, Sequence[Node]], list[Piece]]


def together(pieces: Sequence[Piece]) -> Tensor:
    """Return several versions as one tensor, `[versions, ...]`; copied only if they do not lie so already."""
    whole, start = pieces[0].whole, pieces[0].position
    one_stack = start is not None and all(piece.whole is whole for piece in pieces)
    if not one_stack:
        # `unsqueeze` is a view, and `stack` would copy.
        if len(pieces) == 1:
            return pieces[0].value.unsqueeze(0)  # type: ignore[no-any-return]
        return torch.stack([piece.value for piece in pieces])
    assert start is not None
    positions = [piece.position for piece in pieces]
    # Neighbours in a stack are a slice of it, which is a view too.
    if positions == list(range(start, start + len(positions))):
        return whole[start : start + len(positions)]  # type: ignore[no-any-return]
    return whole.index_select(0, torch.tensor(positions, device=whole.device))  # type: ignore[no-any-return]


def compute(
    program: Program, node: Node, count: int, reads: Mapping[Node, Sequence[int]], values: Values
) -> list[Piece]:
    """Return several versions of a step's value.

    Args:
        program: Whose step it is.
        node: The step.
        count: How many versions.
        reads: By argument, the version that each of them is computed from.
        values: The values that are there.
    """
    pieces = dict[Node, list[Piece]]()
    varying = list[Node]()
    for argument, versions in reads.items():
        known = values[argument]
        pieces[argument] = [known[version] for version in versions]
        if len(set(versions)) > 1:
            varying.append(argument)
    # Versions of which all arguments are equal differ by random numbers, so each is computed alone.
    rule = _rule(node, pieces, varying) if varying else None
    if rule is not None:
        return rule(node, pieces, varying)
    outputs = list[Piece]()
    for index in range(count):
        arguments = {argument: read[index].value for argument, read in pieces.items()}
        outputs.append(Piece(program.step(node, arguments)))
    return outputs


def _rule(node: Node, pieces: Pieces, varying: Sequence[Node]) -> Rule | None:
    """Return how the versions of a step are computed together; None where they are not.

    Args:
        node: The step.
        pieces: By argument, what each version is computed from.
        varying: The arguments in which versions differ.
    """
    data = _data_of(node, varying)
    first = pieces[data][0].value
    if not isinstance(first, Tensor):
        return None
    if data in varying and first.nbytes > LARGE:
        return None
    operator = operator_name(node)
    if operator in BATCH_RANKS:
        return _folding_rule(node, operator, data, first)
    # A tensor without axes is weaker in type promotion than a stack of such tensors would be.
    if not all(_has_axes(pieces[argument][0].value) for argument in varying):
        return None
    if is_pointwise(node.target) or _is_idle_dropout(node, operator):
        return _pointwise
    # Sizes that vary would give versions of several shapes, which make no stack.
    if node.target in RESHAPES and data in varying:
        return _reshaped
    return None


def _data_of(node: Node, varying: Sequence[Node]) -> Node:
    """Return the argument that carries the samples: by torch's convention the first."""
    if node.args and isinstance(node.args[0], Node):
        return node.args[0]
    return varying[0]


def _folding_rule(node: Node, operator: str, data: Node, first: Tensor) -> Rule | None:
    """Return the rule of an operator that treats samples alike; None where it does not do so here.

    Args:
        node: The step.
        operator: Its name.
        data: The argument that carries the samples.
        first: One version of it.
    """
    # In `linear(x, x)` the data are weights too, and would be folded with them.
    if data in node.args[1:]:
        return None
    return _folded if _fits(node, operator, first) else None


def _is_idle_dropout(node: Node, operator: str) -> bool:
    """Return whether a step is dropout in eval mode, which returns its input."""
    return operator == "dropout" and not Operation(node, operator, "", "").argument("train")


def _has_axes(value: Any) -> bool:
    """Return whether a value is a tensor with axes."""
    return isinstance(value, Tensor) and value.ndim > 0


def _fits(node: Node, operator: str, data: Tensor) -> bool:
    """Return whether the operator runs on a batch, and treats its samples alike.

    Args:
        node: The step.
        operator: Its name, one of `BATCH_RANKS`.
        data: One version of its first argument.
    """
    operation = Operation(node, operator, "", "")
    # The normalised axes are the last ones; there must be one before them for samples.
    if operator == "layer_norm":
        return data.ndim > len(operation.argument("normalized_shape"))
    # These take any axes behind the samples. A norm in train mode mixes samples, and would mix versions.
    if operator in ("batch_norm", "linear", "group_norm"):
        mixes = operation.argument("training", False)
        return data.ndim >= BATCH_RANKS[operator] and not mixes
    # Convolutions and poolings take a sample without a batch too, with one axis less.
    return data.ndim == BATCH_RANKS[operator]


def _pointwise(node: Node, pieces: Pieces, varying: Sequence[Node]) -> list[Piece]:
    """Run an operator that does the same to every number on stacks.

    Args:
        node: The step.
        pieces: By argument, what each version is computed from.
        varying: The arguments in which versions differ.
    """
    order = _by_position(pieces[varying[0]])
    firsts = [read[0].value for read in pieces.values()]
    axes = max(first.ndim for first in firsts if isinstance(first, Tensor))

    def argument(of: Node) -> Any:
        if of not in varying:
            return pieces[of][0].value
        stack = together([pieces[of][index] for index in order])
        # Broadcasting aligns the last axes, so the axis of versions must come before all axes of a version.
        missing = [1] * (axes - stack.ndim + 1)
        return stack.reshape(len(order), *missing, *stack.shape[1:])

    return _pieces(_call(node, argument), order)


def _reshaped(node: Node, pieces: Pieces, varying: Sequence[Node]) -> list[Piece]:
    """Change the shape of every version on a stack, and keep the axis of versions.

    Args:
        node: The step.
        pieces: By argument, what each version is computed from.
        varying: The arguments in which versions differ.
    """
    (data,) = varying
    order = _by_position(pieces[data])
    stack = together([pieces[data][index] for index in order])
    operation = Operation(node, "", "", "")
    # `view` has a size and `reshape` a shape; `flatten` has the axes where it starts and ends.
    sizes = operation.argument("size", operation.argument("shape"))
    if sizes is not None:
        sizes = map_arg(tuple(sizes), lambda of: pieces[of][0].value)
        return _pieces(stack.reshape(len(order), *sizes), order)
    start = _behind_versions(operation.argument("start_dim"))
    end = _behind_versions(operation.argument("end_dim"))
    return _pieces(stack.flatten(start, end), order)


def _behind_versions(axis: int) -> int:
    """Return an axis of a version as an axis of a stack; negative ones count from the end and stay."""
    return axis + 1 if axis >= 0 else axis


def _folded(node: Node, pieces: Pieces, varying: Sequence[Node]) -> list[Piece]:
    """Run an operator on versions folded into the axis of samples, once for each version of its weights.

    Args:
        node: The step.
        pieces: By argument, what each version is computed from; the data first, then the weights.
        varying: The arguments in which versions differ.
    """
    data, *weights = pieces
    groups = defaultdict[tuple[int, ...], list[int]](list)
    for index in _by_position(pieces[data]):
        key = tuple(id(pieces[weight][index]) for weight in weights)
        groups[key].append(index)
    order, outputs = list[int](), list[Tensor]()
    for group in groups.values():
        stack = together([pieces[data][index] for index in group])
        arguments: dict[Node, Any] = {weight: pieces[weight][group[0]].value for weight in weights}
        arguments[data] = stack.flatten(0, 1)
        output = _call(node, arguments.__getitem__)
        outputs.append(output.unflatten(0, stack.shape[:2]))
        order += group
    if len(outputs) == 1:
        return _pieces(outputs[0], order)
    # One stack makes the next step one call; large outputs stay apart, as joining them copies.
    if outputs[0][0].nbytes <= LARGE:
        return _pieces(torch.cat(outputs), order)
    apart = list[Piece]()
    for output in outputs:
        apart += [Piece(output, position) for position in range(len(output))]
    return [apart[place] for place in _inverse(order)]


def _call(node: Node, argument: Callable[[Node], Any]) -> Any:
    """Run a step's operator.

    Args:
        node: The step.
        argument: Returns the value of each step that it reads.
    """
    arguments, named = map_arg((node.args, node.kwargs), argument)
    return node.target(*arguments, **named)  # type: ignore[operator]


def _by_position(pieces: Sequence[Piece]) -> list[int]:
    """Return the order in which versions lie in memory, so that `together` seldom copies."""
    # Stacks come in the order in which they first occur.
    stacks = dict[int, int]()
    places = list[tuple[int, int]]()
    for piece in pieces:
        stack = stacks.setdefault(id(piece.whole), len(stacks))
        places.append((stack, piece.position or 0))
    return sorted(range(len(pieces)), key=places.__getitem__)


def _pieces(stack: Tensor, order: Sequence[int]) -> list[Piece]:
    """Return the versions on a stack, in the order of their numbers.

    Args:
        stack: `[versions, ...]`.
        order: The number of each version on the stack.
    """
    return [Piece(stack, place) for place in _inverse(order)]


def _inverse(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes this one."""
    return sorted(range(len(order)), key=order.__getitem__)
