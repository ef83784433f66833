"""Batched weights: versions of a linear layer that have weights of their own, as one batched product."""

from typing import Any

from pluribus.mechanisms.graph.operators import SYM_SIZE
from pluribus.mechanisms.running.executor import Piece, Task, aten, pieces_of

BATCHED_WEIGHTS = 1 << 20
"""Numbers in the weight of a linear layer up to which versions with weights of their own are one batched
product: up to there it was never slower than one product each, for batches of 1, 32 and 256 samples, 4 and
16 versions, and up to ten times faster for 64 x 64 weights."""

NARROW, WIDE_VERSIONS = 32, 4
"""Outputs up to which, and versions from which on, layers that read one value are one wide product. 16 layers
of 256 to 10 took 203 µs for 256 samples so, and 476 µs as a batched product (19 and 22 µs for one sample); 4
took 75 and 129 µs (18 and 13 µs for one). With 256 outputs each the batched product was faster."""


def is_batched(task: Task) -> bool:
    """Return whether versions of a linear layer are one batched product.

    They are where all groups of equal weights have the same size, as a product has one size of batch.
    """
    data, weight, *_ = task.pieces
    if weight not in task.varying or data is not task.node.args[0]:
        return False
    # `F.linear` takes a vector as its weight too.
    if task.like(weight).ndim != 2 or task.like(weight).numel() > BATCHED_WEIGHTS:
        return False
    return len({len(group) for group in task.by_weights()}) == 1


def run_batched(task: Task) -> list[Piece]:
    """Return the versions of a linear layer, computed by one batched product.

    Versions with equal weights, samples and positions are all samples of that product.
    """
    if _is_wide(task):
        return _run_wide(task)
    groups = task.by_weights()
    order = [index for group in groups for index in group]
    samples = _samples(task, order, len(groups))
    output = _product(task, samples, firsts=[group[0] for group in groups])
    if not _is_plain(task, order, len(groups)):
        output = _with_axes(task, output, versions=len(order) // len(groups))
    return pieces_of(output, order)


def _product(task: Task, samples: Any, firsts: list[int]) -> Any:
    """Return the batched product of samples, `[groups, samples, out]`.

    Args:
        task: The layer.
        samples: Of all groups, `[groups, samples, in]`.
        firsts: A version of each group, whose weights all of the group have.
    """
    executor, pieces = task.executor, task.pieces
    _, weight, *bias = pieces
    weights = executor.together([pieces[weight][first] for first in firsts])
    # Stored the way the product reads them, as [versions, in, out], which is up to twice as fast.
    weights = executor.call(aten.transpose.int, weights, 1, 2)
    weights = executor.call(aten.contiguous.default, weights)
    if not bias:
        return executor.call(aten.bmm.default, samples, weights)
    shifts = executor.together([pieces[bias[0]][first] for first in firsts])
    shifts = executor.call(aten.unsqueeze.default, shifts, 1)
    return executor.call(aten.baddbmm.default, shifts, samples, weights)


def _with_axes(task: Task, output: Any, versions: int) -> Any:
    """Return `[groups, samples, out]` as `[all versions, batch, ..., out]`.

    Args:
        task: The layer.
        output: Of the batched product; its samples are those of all versions of a group.
        versions: In each group.
    """
    executor, data = task.executor, next(iter(task.pieces))
    axes = len(task.like(data).shape)
    # Any of the axes may be the batch, as in tensors of sequences first, so sizes are read in every run.
    first = executor.value(task.pieces[data][0]) if axes > 2 else None
    middle = [executor.call(SYM_SIZE, first, axis) for axis in range(1, axes - 1)]
    sizes = [versions, -1, *middle] if versions > 1 else [-1, *middle]
    # Not one `reshape`: torch.export could not tell that a batch of any size has these strides (2.13).
    output = executor.call(aten.unflatten.int, output, 1, sizes)
    return executor.call(aten.flatten.using_ints, output, 0, 1) if versions > 1 else output


def _is_wide(task: Task) -> bool:
    """Return whether versions are one wide product: narrow layers, as heads, that read the same samples."""
    data, weight, *_ = task.pieces
    if data in task.varying or len(task.like(data).shape) != 2:
        return False
    return len(task.pieces[weight]) >= WIDE_VERSIONS and len(task.like(weight)) <= NARROW


def _run_wide(task: Task) -> list[Piece]:
    """Return the versions of a linear layer, computed by one product with all of their weights.

    Args:
        task: The layer; all versions read the same samples, `[batch, in]`.
    """
    executor, pieces = task.executor, task.pieces
    data, weight, *bias = pieces
    versions = len(pieces[weight])
    samples = executor.value(pieces[data][0])
    weights = executor.together(pieces[weight])
    weights = executor.call(aten.flatten.using_ints, weights, 0, 1)
    # Stored as [in, versions * out], the way the product reads them.
    weights = executor.call(aten.contiguous.default, executor.call(aten.t.default, weights))
    if bias:
        shifts = executor.call(aten.flatten.using_ints, executor.together(pieces[bias[0]]), 0, 1)
        output = executor.call(aten.addmm.default, shifts, samples, weights)
    else:
        output = executor.call(aten.mm.default, samples, weights)
    apart = executor.call(aten.unflatten.int, output, 1, [versions, -1])
    return pieces_of(executor.call(aten.transpose.int, apart, 0, 1), range(versions))


def _samples(task: Task, order: list[int], groups: int) -> Any:
    """Return the data of all versions, `[groups, samples, in]`.

    Args:
        task: The layer.
        order: The versions, those with equal weights beside each other.
        groups: How many versions of weights there are.
    """
    executor, data = task.executor, next(iter(task.pieces))
    shape = task.like(data).shape
    if data in task.varying:
        stack = executor.together([task.pieces[data][index] for index in order])
        if _is_plain(task, order, groups):
            return stack
        if len(order) > groups:
            stack = executor.call(aten.unflatten.int, stack, 0, [groups, -1])
        return executor.call(aten.flatten.using_ints, stack, 1, -2)
    single = executor.value(task.pieces[data][0])
    if len(shape) > 2:
        single = executor.call(aten.flatten.using_ints, single, 0, -2)
    # The same for all versions, without a copy.
    return executor.call(aten.expand.default, single, [groups, -1, -1])


def _is_plain(task: Task, order: list[int], groups: int) -> bool:
    """Return whether each version is a matrix of samples with weights of its own."""
    data = next(iter(task.pieces))
    return len(order) == groups and len(task.like(data).shape) == 2
