"""Stacking: run one operator for several versions of a value.

Versions lie on a new first axis, `[versions, ...]`. Three kinds of operators run on such a stack: those
that do the same to every number, those that change the shape of each version alone, and those that treat
every entry of axis 0 alike, into which versions are folded, once for each version of their weights. All
others run version by version.

The rules call operators through an `Executor`. `Eager` runs them; the executor of `lowering.py` writes them
into a graph instead, so that a frozen ensemble computes what a plan computes.
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from pluribus.mechanisms.graph.export import Operation
from pluribus.mechanisms.graph.operators import BATCH_RANKS, RESHAPES, is_pointwise, operator_name
from pluribus.mechanisms.graph.program import Program

aten: Any = torch.ops.aten

LARGE = 1 << 20
"""Bytes of one version from which on versions run one by one: there stacking copies more than it saves."""
BATCHED_WEIGHTS = 1 << 20
"""Numbers in the weight of a linear layer up to which versions with weights of their own are one batched
product: up to there it was never slower than one product each, for batches of 1, 32 and 256 samples, 4 and
16 versions, and up to ten times faster for 64 x 64 weights."""


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


class Executor(ABC):
    """Carry out the operators of a plan: at once, or later."""

    batches_weights: ClassVar[bool] = False
    """Whether stacks of weights are made once, and not in every run."""

    @abstractmethod
    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value of an operator, or what stands for it."""

    @abstractmethod
    def like(self, node: Node, piece: Piece) -> Any:
        """Return a value of the shape of one version of a step's value."""

    @abstractmethod
    def step(self, program: Program, node: Node, values: Mapping[Node, Any]) -> Any:
        """Return what one step computes from the values of others."""

    def value(self, piece: Piece) -> Any:
        """Return a version alone."""
        if piece.position is None:
            return piece.whole
        return self.call(aten.select.int, piece.whole, 0, piece.position)

    def together(self, pieces: Sequence[Piece]) -> Any:
        """Return several versions as one tensor, `[versions, ...]`; copied only if they do not lie so."""
        whole, start = pieces[0].whole, pieces[0].position
        one_stack = start is not None and all(piece.whole is whole for piece in pieces)
        if not one_stack:
            # `unsqueeze` is a view, and `stack` would copy.
            if len(pieces) == 1:
                return self.call(aten.unsqueeze.default, self.value(pieces[0]), 0)
            return self.call(aten.stack.default, [self.value(piece) for piece in pieces])
        assert start is not None
        positions = [piece.position for piece in pieces]
        # Neighbours in a stack are a slice of it, which is a view too.
        if positions == list(range(start, start + len(positions))):
            return self.slice(whole, start, start + len(positions))
        index = self.constant(positions, whole)
        return self.call(aten.index_select.default, whole, 0, index)

    def slice(self, whole: Any, start: int, end: int) -> Any:
        """Return neighbours in a stack."""
        return self.call(aten.slice.Tensor, whole, 0, start, end)

    @abstractmethod
    def constant(self, numbers: Sequence[Any], beside: Any) -> Any:
        """Return whole numbers as a tensor on the device of another one."""


class Eager(Executor):
    """Run every operator at once."""

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        return target(*args, **kwargs)

    def like(self, node: Node, piece: Piece) -> Any:
        return piece.value

    def step(self, program: Program, node: Node, values: Mapping[Node, Any]) -> Any:
        return program.step(node, values)

    def constant(self, numbers: Sequence[Any], beside: Any) -> Any:
        return torch.tensor(numbers, device=beside.device)


EAGER = Eager()


def together(pieces: Sequence[Piece]) -> Tensor:
    """Return several versions as one tensor, `[versions, ...]`; copied only if they do not lie so already."""
    stack: Tensor = EAGER.together(pieces)
    return stack


@dataclass(frozen=True, slots=True)
class Task:
    """Several versions of one step.

    Attributes:
        node: The step.
        pieces: By argument, what each version is computed from; the data first, then the weights.
        varying: The arguments in which versions differ.
        executor: Carries out operators.
    """

    node: Node
    pieces: Pieces
    varying: Sequence[Node]
    executor: Executor

    def like(self, node: Node) -> Any:
        """Return a value of the shape of one version of an argument."""
        return self.executor.like(node, self.pieces[node][0])

    def call(self, argument: Callable[[Node], Any]) -> Any:
        """Run the step's operator.

        Args:
            argument: Returns the value of each step that it reads.
        """
        arguments, named = map_arg((self.node.args, self.node.kwargs), argument)
        return self.executor.call(self.node.target, *arguments, **named)


Rule = Callable[[Task], list[Piece]]


def compute(
    program: Program,
    node: Node,
    count: int,
    reads: Mapping[Node, Sequence[int]],
    values: Values,
    executor: Executor = EAGER,
) -> list[Piece]:
    """Return several versions of a step's value.

    Args:
        program: Whose step it is.
        node: The step.
        count: How many versions.
        reads: By argument, the version that each of them is computed from.
        values: The values that are there.
        executor: Carries out operators.
    """
    pieces = dict[Node, list[Piece]]()
    varying = list[Node]()
    for argument, versions in reads.items():
        known = values[argument]
        pieces[argument] = [known[version] for version in versions]
        if len(set(versions)) > 1:
            varying.append(argument)
    # Versions of which all arguments are equal differ by random numbers, so each is computed alone.
    if varying:
        task = Task(node, pieces, varying, executor)
        rule = _rule(task)
        if rule is not None:
            return rule(task)
    outputs = list[Piece]()
    for index in range(count):
        arguments = {argument: executor.value(read[index]) for argument, read in pieces.items()}
        outputs.append(Piece(executor.step(program, node, arguments)))
    return outputs


def _rule(task: Task) -> Rule | None:
    """Return how the versions of a step are computed together; None where they are not."""
    node, varying = task.node, task.varying
    data = _data_of(node, varying)
    first = task.like(data)
    if not isinstance(first, Tensor):
        return None
    if data in varying and first.nbytes > LARGE:
        return None
    operator = operator_name(node)
    if operator in BATCH_RANKS:
        return _folding_rule(task, operator, data, first)
    # A tensor without axes is weaker in type promotion than a stack of such tensors would be.
    if not all(_has_axes(task.like(argument)) for argument in varying):
        return None
    if is_pointwise(node.target) or is_idle_dropout(node, operator):
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


def _folding_rule(task: Task, operator: str, data: Node, first: Tensor) -> Rule | None:
    """Return the rule of an operator that treats samples alike; None where it does not do so here.

    Args:
        task: The step.
        operator: Its name.
        data: The argument that carries the samples.
        first: One version of it.
    """
    # In `linear(x, x)` the data are weights too, and would be folded with them.
    if data in task.node.args[1:]:
        return None
    if not _fits(task.node, operator, first):
        return None
    if operator == "linear" and task.executor.batches_weights and _is_batched(task):
        return _batched
    return _folded


def is_idle_dropout(node: Node, operator: str) -> bool:
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


def _pointwise(task: Task) -> list[Piece]:
    """Run an operator that does the same to every number on stacks."""
    executor, pieces = task.executor, task.pieces
    order = _by_position(pieces[task.varying[0]])
    ranks = dict[Node, int]()
    for of in pieces:
        value = task.like(of)
        if isinstance(value, Tensor):
            ranks[of] = value.ndim
    axes = max(ranks.values())

    def argument(of: Node) -> Any:
        if of not in task.varying:
            return executor.value(pieces[of][0])
        stack = executor.together([pieces[of][index] for index in order])
        # Broadcasting aligns the last axes, so the axis of versions must come before all axes of a version.
        for _ in range(axes - ranks[of]):
            stack = executor.call(aten.unsqueeze.default, stack, 1)
        return stack

    return _pieces(task.call(argument), order)


def _reshaped(task: Task) -> list[Piece]:
    """Change the shape of every version on a stack, and keep the axis of versions."""
    executor, pieces, (data,) = task.executor, task.pieces, task.varying
    order = _by_position(pieces[data])
    stack = executor.together([pieces[data][index] for index in order])
    operation = Operation(task.node, "", "", "")
    # `view` has a size and `reshape` a shape; `flatten` has the axes where it starts and ends.
    sizes = operation.argument("size", operation.argument("shape"))
    if sizes is not None:
        sizes = map_arg(tuple(sizes), lambda of: executor.value(pieces[of][0]))
        return _pieces(executor.call(aten.reshape.default, stack, [len(order), *sizes]), order)
    start = _behind_versions(operation.argument("start_dim"))
    end = _behind_versions(operation.argument("end_dim"))
    return _pieces(executor.call(aten.flatten.using_ints, stack, start, end), order)


def _behind_versions(axis: int) -> int:
    """Return an axis of a version as an axis of a stack; negative ones count from the end and stay."""
    return axis + 1 if axis >= 0 else axis


def _by_weights(task: Task) -> list[list[int]]:
    """Return the positions of the versions with equal weights, each group in the order of memory."""
    data, *weights = task.pieces
    groups = defaultdict[tuple[int, ...], list[int]](list)
    for index in _by_position(task.pieces[data]):
        key = tuple(id(task.pieces[weight][index]) for weight in weights)
        groups[key].append(index)
    return list(groups.values())


def _folded(task: Task) -> list[Piece]:
    """Run an operator on versions folded into the axis of samples, once for each version of its weights."""
    executor, pieces = task.executor, task.pieces
    data, *weights = pieces
    order, outputs = list[int](), list[Any]()
    groups = _by_weights(task)
    alone = all(len(group) == 1 for group in groups)
    for group in groups:
        arguments: dict[Node, Any] = {weight: executor.value(pieces[weight][group[0]]) for weight in weights}
        order += group
        if alone:
            arguments[data] = executor.value(pieces[data][group[0]])
            outputs.append(task.call(arguments.__getitem__))
            continue
        stack = executor.together([pieces[data][index] for index in group])
        arguments[data] = executor.call(aten.flatten.using_ints, stack, 0, 1)
        output = task.call(arguments.__getitem__)
        outputs.append(executor.call(aten.unflatten.int, output, 0, [len(group), -1]))
    if len(outputs) == 1:
        return _pieces(outputs[0], order)
    # One stack makes the next step one call; large outputs stay apart, as joining them copies.
    small = executor.like(task.node, Piece(outputs[0], None if alone else 0)).nbytes <= LARGE
    if small:
        join = aten.stack.default if alone else aten.cat.default
        return _pieces(executor.call(join, outputs), order)
    apart = list[Piece]()
    for output, group in zip(outputs, groups, strict=True):
        apart += [Piece(output, None if alone else place) for place in range(len(group))]
    return [apart[place] for place in _inverse(order)]


def _is_batched(task: Task) -> bool:
    """Return whether versions of a linear layer are one batched product.

    They are where all groups of equal weights have the same size, as a product has one size of batch.
    """
    data, weight, *_ = task.pieces
    if weight not in task.varying or task.like(weight).numel() > BATCHED_WEIGHTS:
        return False
    sizes = {len(group) for group in _by_weights(task)}
    return len(sizes) == 1 and data is task.node.args[0]


def _batched(task: Task) -> list[Piece]:
    """Run a linear layer whose versions have weights of their own as one batched product."""
    executor, pieces = task.executor, task.pieces
    data, weight, *bias = pieces
    groups = _by_weights(task)
    order = [index for group in groups for index in group]
    shape = task.like(data).shape
    if data in task.varying:
        stack = executor.together([pieces[data][index] for index in order])
        # Versions with equal weights, samples and positions are all samples of one product.
        if len(order) > len(groups) or len(shape) > 2:
            stack = executor.call(aten.reshape.default, stack, [len(groups), -1, shape[-1]])
    else:
        single = executor.value(pieces[data][0])
        if len(shape) > 2:
            single = executor.call(aten.flatten.using_ints, single, 0, -2)
        stack = executor.call(aten.expand.default, single, [len(groups), -1, -1])
    firsts = [group[0] for group in groups]
    weights = executor.together([pieces[weight][first] for first in firsts])
    # Stored the way the product reads them, as [versions, in, out], which is up to twice as fast.
    weights = executor.call(aten.transpose.int, weights, 1, 2)
    weights = executor.call(aten.contiguous.default, weights)
    if bias:
        shifts = executor.together([pieces[bias[0]][first] for first in firsts])
        shifts = executor.call(aten.unsqueeze.default, shifts, 1)
        output = executor.call(aten.baddbmm.default, shifts, stack, weights)
    else:
        output = executor.call(aten.bmm.default, stack, weights)
    if len(order) > len(groups) or len(shape) > 2:
        sizes = [len(order), -1, *shape[1:-1], task.like(weight).shape[0]]
        output = executor.call(aten.reshape.default, output, sizes)
    return _pieces(output, order)


def _by_position(pieces: Sequence[Piece]) -> list[int]:
    """Return the order in which versions lie in memory, so that `together` seldom copies."""
    # Stacks come in the order in which they first occur.
    stacks = dict[int, int]()
    places = list[tuple[int, int]]()
    for piece in pieces:
        stack = stacks.setdefault(id(piece.whole), len(stacks))
        places.append((stack, piece.position or 0))
    return sorted(range(len(pieces)), key=places.__getitem__)


def _pieces(stack: Any, order: Sequence[int]) -> list[Piece]:
    """Return the versions on a stack, in the order of their numbers.

    Args:
        stack: `[versions, ...]`.
        order: The number of each version on the stack.
    """
    return [Piece(stack, place) for place in _inverse(order)]


def _inverse(order: Sequence[int]) -> list[int]:
    """Return the permutation that undoes this one."""
    return sorted(range(len(order)), key=order.__getitem__)
