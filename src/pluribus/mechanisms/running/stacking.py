"""Stacking: run one operator for several versions of a value.

Versions lie on a new first axis, `[versions, ...]`. Three kinds of operators run on such a stack: those
that do the same to every number, those that change the shape of each version alone, and those that treat
every entry of axis 0 alike, into which versions are folded, once for each version of their weights. All
others run version by version. Small versions are copied to a stack; large ones run together only where they
lie on one already.

The rules call operators through an `Executor`. `Eager` runs them; the executor of `lowering.py` writes them
into a graph instead, so that a frozen ensemble computes what a plan computes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from pluribus.mechanisms.graph.operation import Operation
from pluribus.mechanisms.graph.operators import BATCH_RANKS, RESHAPES, is_pointwise, operator_name
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.running.batched_weights import is_batched, run_batched
from pluribus.mechanisms.running.copies import LARGE, is_too_large, most_copied
from pluribus.mechanisms.running.executor import (
    EAGER,
    Executor,
    Piece,
    Task,
    aten,
    by_position,
    inverse,
    pieces_of,
)

Values = Mapping[Node, Mapping[int, Piece]]

AXIS_VIEWS: Mapping[Any, tuple[int, ...]] = {
    aten.transpose.int: (1, 2),
    aten.unflatten.int: (1,),
    aten.select.int: (1,),
}
"""Views of a tensor with numbers of axes among their arguments, and the positions of these."""

ATTENTION_AXES = 4
"""Axes of a query: batch, heads, tokens, features."""

TOKENS_AXES = 3
"""Axes of tokens: batch, tokens, features."""

Rule = Callable[[Task], list[Piece]]


def compute(
    program: Program,
    node: Node,
    count: int,
    reads: Mapping[Node, Sequence[int]],
    values: Values,
    executor: Executor = EAGER,
    apart: bool = False,
) -> list[Piece]:
    """Return several versions of a step's value.

    Args:
        program: Whose step it is.
        node: The step.
        count: How many versions.
        reads: By argument, the version that each of them is computed from.
        values: The values that are there.
        executor: Carries out operators.
        apart: Whether each row of the block has a version of its own.
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
        task = Task(node, pieces, varying, executor, apart)
        rule = _rule(task)
        if rule is not None:
            return rule(task)
    outputs = list[Piece]()
    for index in range(count):
        arguments = {argument: executor.value(read[index]) for argument, read in pieces.items()}
        outputs.append(Piece(executor.step(program, node, arguments)))
    return outputs


def _rule(task: Task) -> Rule | None:
    """Return how the versions of a step are computed together; None where they are not.

    Args:
        task: The step, with at least one argument in which versions differ.
    """
    node, varying = task.node, task.varying
    data = _data_of(node, varying)
    first = task.like(data)
    if not isinstance(first, Tensor):
        return None
    if is_too_large(task, data, first):
        return None
    operator = operator_name(node)
    if operator == "index_select":
        return _picking_rule(task, data)
    if operator == "scaled_dot_product_attention":
        return _attended if _is_plain_attention(task) else None
    if operator in BATCH_RANKS:
        return _folding_rule(task, operator, data, first)
    # A tensor without axes is weaker in type promotion than a stack of such tensors would be.
    if not all(_has_axes(task.like(argument)) for argument in varying):
        return None
    if is_pointwise(node.target) or is_idle_dropout(node, operator):
        return _pointwise
    return _view_rule(task, data)


def _view_rule(task: Task, data: Node) -> Rule | None:
    """Return the rule of a step that gives the numbers of each version another shape; None for others.

    Args:
        task: The step.
        data: The argument that carries the samples.
    """
    # Sizes that vary would give versions of several shapes, which make no stack.
    if task.node.target in RESHAPES and data in task.varying:
        return _reshaped
    if task.node.target in AXIS_VIEWS and task.varying == [data]:
        return _viewed
    return None


def _picking_rule(task: Task, data: Node) -> Rule | None:
    """Return the rule of a choice of positions; None where versions pick out of several values.

    Args:
        task: The step.
        data: The argument that is picked from.
    """
    # Positions are joined in every run unless they are constants of a graph. A convolution would copy its
    # channels out of a joined map: for 32 samples that took 1.25 times as long as one pick for each.
    if data in task.varying or not task.executor.batches_weights or task.like(data).ndim > TOKENS_AXES:
        return None
    return _picked


def _data_of(node: Node, varying: Sequence[Node]) -> Node:
    """Return the argument that carries the samples: by torch's convention the first.

    Args:
        node: The step.
        varying: The arguments in which versions differ.
    """
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
    if operator == "linear" and task.executor.batches_weights and is_batched(task):
        return run_batched
    return _folded


def is_idle_dropout(node: Node, operator: str) -> bool:
    """Return whether a step is dropout in eval mode, which returns its input.

    Args:
        node: The step.
        operator: Its name.
    """
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
    """Run an operator that does the same to every number on stacks.

    Arguments in which versions do not differ are broadcast to all of them.
    """
    executor, pieces = task.executor, task.pieces
    order = by_position(pieces[task.varying[0]])
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

    return pieces_of(task.call(argument), order)


def _reshaped(task: Task) -> list[Piece]:
    """Change the shape of every version on a stack, and keep the axis of versions.

    Sizes are the same for all versions.
    """
    executor, pieces, (data,) = task.executor, task.pieces, task.varying
    order = by_position(pieces[data])
    stack = executor.together([pieces[data][index] for index in order])
    operation = Operation(task.node, "", "", "")
    # `view` has a size and `reshape` a shape; `flatten` has the axes where it starts and ends.
    sizes = operation.argument("size", operation.argument("shape"))
    if sizes is not None:
        sizes = map_arg(tuple(sizes), lambda of: executor.value(pieces[of][0]))
        return pieces_of(executor.call(aten.reshape.default, stack, [len(order), *sizes]), order)
    start = _behind_versions(operation.argument("start_dim"))
    end = _behind_versions(operation.argument("end_dim"))
    return pieces_of(executor.call(aten.flatten.using_ints, stack, start, end), order)


def _viewed(task: Task) -> list[Piece]:
    """Swap, split or pick axes of all versions on a stack, without a copy."""
    executor, (data,) = task.executor, task.varying
    order = by_position(task.pieces[data])
    stack = executor.together([task.pieces[data][index] for index in order])
    arguments: list[Any] = list(map_arg(task.node.args, lambda of: executor.value(task.pieces[of][0])))
    arguments[0] = stack
    for place in AXIS_VIEWS[task.node.target]:
        arguments[place] = _behind_versions(arguments[place])
    return pieces_of(executor.call(task.node.target, *arguments, **task.node.kwargs), order)


def _is_plain_attention(task: Task) -> bool:
    """Return whether query, key and value vary, have a batch and heads, and there is no mask."""
    parts: tuple[Any, ...] = task.node.args[:3]
    # A mask may have one entry for each sample, and would have to be repeated.
    if len(task.varying) < 3 or not set(parts) == set(task.varying) == set(task.pieces):
        return False
    return all(task.like(part).ndim == ATTENTION_AXES for part in parts)


def _attended(task: Task) -> list[Piece]:
    """Attend in all versions at once: versions are samples, which do not see each other."""
    executor = task.executor
    order = by_position(task.pieces[task.varying[0]])

    def folded(of: Node) -> Any:
        stack = executor.together([task.pieces[of][index] for index in order])
        return executor.call(aten.flatten.using_ints, stack, 0, 1)

    output = task.call(folded)
    return pieces_of(executor.call(aten.unflatten.int, output, 0, [len(order), -1]), order)


def _behind_versions(axis: int) -> int:
    """Return an axis of a version as an axis of a stack; negative ones count from the end and stay."""
    return axis + 1 if axis >= 0 else axis


def _folded(task: Task) -> list[Piece]:
    """Run an operator on versions folded into the axis of samples, once for each version of its weights.

    Args:
        task: The step; its first argument carries the samples, the others are weights.

    Returns:
        Pieces of one stack where versions are small.
    """
    groups = task.by_weights()
    order = [index for group in groups for index in group]
    alone = len(groups) == len(order)
    outputs = [_run_group(task, group, alone) for group in groups]
    if len(outputs) == 1:
        return pieces_of(outputs[0], order)
    apart = list[Piece]()
    for output, group in zip(outputs, groups, strict=True):
        places = [None] if alone else range(len(group))
        apart += [Piece(output, place, len(group)) for place in places]
    # One stack makes the next step one call; large outputs stay apart, as joining them copies.
    like = task.executor.like(task.node, apart[0])
    if like.nbytes > (most_copied(task, like) if alone else LARGE):
        return [apart[place] for place in inverse(order)]
    join = aten.stack.default if alone else aten.cat.default
    return pieces_of(task.executor.call(join, outputs), order)


def _picked(task: Task) -> list[Piece]:
    """Pick the positions of all versions out of one value at once.

    Args:
        task: An `index_select` whose versions read one value and have as many positions each.
    """
    executor, (data, index) = task.executor, task.pieces
    axis = Operation(task.node, "", "", "").argument("dim")
    joined = executor.call(aten.cat.default, [executor.value(piece) for piece in task.pieces[index]])
    picked = executor.call(aten.index_select.default, executor.value(task.pieces[data][0]), axis, joined)
    count = len(task.pieces[index])
    apart = executor.call(aten.unflatten.int, picked, axis, [count, -1])
    return pieces_of(executor.call(aten.movedim.int, apart, axis, 0), range(count))


def _run_group(task: Task, group: Sequence[int], alone: bool) -> Any:
    """Run an operator for the versions that have one version of its weights.

    Args:
        task: The step.
        group: The positions of these versions.
        alone: Whether there is one such version, for all weights.

    Returns:
        The version itself where it is alone, else a stack, `[versions, ...]`.
    """
    executor, pieces = task.executor, task.pieces
    data, *weights = pieces
    arguments: dict[Node, Any] = {weight: executor.value(pieces[weight][group[0]]) for weight in weights}
    if alone:
        arguments[data] = executor.value(pieces[data][group[0]])
        return task.call(arguments.__getitem__)
    stack = executor.together([pieces[data][index] for index in group])
    arguments[data] = executor.call(aten.flatten.using_ints, stack, 0, 1)
    output = task.call(arguments.__getitem__)
    return executor.call(aten.unflatten.int, output, 0, [len(group), -1])
