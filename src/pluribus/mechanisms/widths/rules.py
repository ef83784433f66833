"""Rules: what single operators do to channels, products, norms, attention and recurrence among them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pluribus.mechanisms.graph.operation import Operation
from pluribus.mechanisms.graph.operators import (
    ADDED_PRODUCTS,
    CHANNEL_NORMS,
    CONCATENATIONS,
    CONVOLUTIONS,
    LAST_AXIS_NORMS,
    MATRIX_PRODUCTS,
    PADS,
    PICKS,
    RECURRENT,
)
from pluribus.mechanisms.widths.channels import FILLER, Channels, Labelled, varying
from pluribus.mechanisms.widths.flow import RULES as RULES
from pluribus.mechanisms.widths.flow import Flow, rule

# A recurrent layer has weights for its input and for its state, and a bias for each of them.
BIASED_WEIGHTS, PLAIN_WEIGHTS = 4, 2


# x W^T + b: input channels meet the columns of the weight and are summed over, rows and bias remain.
@rule("linear")
def _linear(flow: Flow, operation: Operation) -> Labelled:
    """Couple the input with the columns of the weight, and the bias with its rows."""
    x, weight, bias = (flow.argument(operation, name) for name in ("input", "weight", "bias"))
    outer = list(range(len(x.shape) - 1))
    wide, summed = len(outer), len(outer) + 1
    # A weight with one axis is a single row, and its result has no axis for it.
    kept = [*outer, wide] if len(weight.shape) == 2 else outer
    terms = [(x, [*outer, summed]), (weight, [wide, summed][-len(weight.shape) :])]
    if bias is not None:
        terms.append((bias, kept[-len(bias.shape) :]))
    return flow.channels.join(terms, flow.shape(operation), kept)


def product(flow: Flow, one: Labelled, other: Labelled, shape: tuple[int, ...]) -> Labelled:
    """Return the labels of `one @ other`, with axes in front that broadcast."""
    front = max(len(one.shape), len(other.shape)) - 2
    rows, columns, summed = front, front + 1, front + 2
    kept = list(range(max(front, 0)))
    left, right = [summed], [summed]
    # A vector has the axis alone that is summed over, and leaves none in the result.
    if len(one.shape) > 1:
        left = [*range(front - len(one.shape) + 2, front), rows, summed]
        kept.append(rows)
    if len(other.shape) > 1:
        right = [*range(front - len(other.shape) + 2, front), summed, columns]
        kept.append(columns)
    return flow.channels.join([(one, left), (other, right)], shape, kept)


@rule(*MATRIX_PRODUCTS)
def _matmul(flow: Flow, operation: Operation) -> Labelled:
    """Couple the columns of the first factor with the rows of the second."""
    one, other = (flow.resolve(argument) for argument in operation.node.args[:2])
    return product(flow, one, other, flow.shape(operation))


@rule(*ADDED_PRODUCTS)
def _addmm(flow: Flow, operation: Operation) -> Labelled:
    """Couple as a product, then as a sum with the first argument."""
    bias, one, other = (flow.resolve(argument) for argument in operation.node.args[:3])
    shape = flow.shape(operation)
    return flow.elementwise([product(flow, one, other, shape), bias], shape)


# The equation gives the letters; an ellipsis and repeated letters (diagonals) are refused, being rare.
@rule("einsum")
def _einsum(flow: Flow, operation: Operation) -> Labelled:
    """Couple operands as the equation says.

    Raises:
        ConversionError: The equation has an ellipsis, a repeated letter, or no arrow.
    """
    equation = str(operation.node.args[0]).replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    repeated = any(len(set(term)) < len(term) for term in terms)
    if not arrow or "." in equation or repeated:
        raise flow.refuse(operation)
    # Letters of the result come first, so that its axes are the first numbers.
    letters = set(inputs) - {","}
    order = sorted(letters, key=lambda letter: (letter not in output, inputs.index(letter)))
    operands = []
    for value, term in zip(flow.resolve(operation.node.args[1]), terms, strict=True):
        operands.append((value, [order.index(letter) for letter in term]))
    return flow.channels.join(operands, flow.shape(operation), [order.index(letter) for letter in output])


# softmax(q k^T + mask) v: two products, between which nothing but the mask meets the scores.
@rule("scaled_dot_product_attention")
def _attention(flow: Flow, operation: Operation) -> Labelled:
    """Couple queries with keys, keys with values by position, and both with the mask."""
    query, key, value = (flow.argument(operation, name) for name in ("query", "key", "value"))
    swapped_shape = (*key.shape[:-2], key.shape[-1], key.shape[-2])
    swapped = Labelled(swapped_shape, tuple(label.transpose(-1, -2) for label in key.labels))
    shape = (*query.shape[:-1], key.shape[-2])
    scores = product(flow, query, swapped, shape)
    mask = flow.argument(operation, "attn_mask")
    if isinstance(mask, Labelled):
        scores = flow.elementwise([scores, mask], shape)
    return product(flow, scores, value, flow.shape(operation))


@rule(*CONVOLUTIONS)
def _convolution(flow: Flow, operation: Operation) -> Labelled:
    """Couple input channels, weight and bias; return the channels of the output.

    Weights are `[out, in / groups, ...]`, transposed ones `[in, out / groups, ...]`.
    """
    x, weight, bias = (flow.argument(operation, name) for name in ("input", "weight", "bias"))
    channels, groups = flow.channels, flow.argument(operation, "groups")
    # Without a batch, channels are axis 0.
    axis = 1 if len(x.shape) == len(weight.shape) else 0
    read = channels.along(x, axis)
    # The sizes of the kernel are no channels.
    weight = channels.fixed_along(weight, range(2, len(weight.shape)))
    first, second = channels.along(weight, 0), channels.along(weight, 1)
    if "transpose" in operation.operator:
        leaving = _transposed_convolution(flow, read, first, second, groups)
    else:
        leaving = _plain_convolution(flow, read, second, first, groups)
    if bias is not None:
        channels.unify(leaving, channels.along(bias, 0))
    shape = flow.shape(operation)
    return channels.labelled(shape, [_on_axis(leaving, axis, len(shape))])


def _plain_convolution(flow: Flow, read: Tensor, entering: Tensor, leaving: Tensor, groups: int) -> Tensor:
    """Couple input channels with those of a weight `[out, in / groups, ...]`; return the output's."""
    channels = flow.channels
    if groups == 1:
        channels.unify(read, entering)
    elif groups == len(read):
        # Depthwise: each channel makes one output of its own, or several.
        channels.unify(read.repeat_interleave(len(leaving) // groups), leaving)
    else:
        # All groups read through the same columns of the weight, so that their channels change together.
        channels.unify(read.view(groups, -1), entering)
        flow.blocks.append(leaving.view(groups, -1))
    return leaving


def _transposed_convolution(
    flow: Flow, read: Tensor, entering: Tensor, leaving: Tensor, groups: int
) -> Tensor:
    """Couple input channels with those of a weight `[in, out / groups, ...]`; return the output's."""
    channels = flow.channels
    channels.unify(read, entering)
    if groups == 1:
        return leaving
    if groups == len(read):
        # Depthwise: how many outputs a channel has cannot change, only the number of channels.
        channels.fix(leaving)
        return read.repeat_interleave(len(leaving))
    flow.blocks.append(read.view(groups, -1))
    return leaving.repeat(groups)


def _on_axis(label: Tensor, axis: int, rank: int) -> Tensor:
    """Return a label `[size]` as one that varies along an axis among `rank`."""
    sizes = [1] * rank
    sizes[axis] = -1
    return label.reshape(sizes)


# Every channel is normalised over its positions, which must therefore carry the same channels.
@rule(*CHANNEL_NORMS)
def _channel_norm(flow: Flow, operation: Operation) -> Labelled:
    """Couple the channels of axis 1 with the norm's parameters and statistics."""
    x: Labelled = flow.argument(operation, "input") or flow.argument(operation, "self")
    x = flow.channels.tie(x, range(2, len(x.shape)))
    letters = list(range(len(x.shape)))
    channel_axis = letters[:2][-1:]
    terms = [(x, letters)]
    for name in ("weight", "bias", "running_mean", "running_var"):
        value = flow.argument(operation, name)
        if value is not None:
            terms.append((value, channel_axis))
    result = flow.channels.join(terms, x.shape, letters)
    groups = flow.argument(operation, "num_groups")
    if groups is not None and groups < x.shape[1]:
        # The number of channels must stay divisible by the number of groups.
        flow.blocks.append(flow.channels.along(result, 1).view(groups, -1))
    return result


@rule(*LAST_AXIS_NORMS)
def _layer_norm(flow: Flow, operation: Operation) -> Labelled:
    """Couple the last axes with the norm's parameters."""
    x = flow.argument(operation, "input")
    letters = range(len(x.shape))
    last = letters[-len(flow.argument(operation, "normalized_shape")) :]
    terms = [(x, letters)]
    for name in ("weight", "bias"):
        value = flow.argument(operation, name)
        if value is not None:
            terms.append((value, last))
    return flow.channels.join(terms, x.shape, letters)


@rule("_weight_norm")
def _weight_norm(flow: Flow, operation: Operation) -> Labelled:
    """Couple directions and lengths of a weight, entry by entry."""
    values = [flow.argument(operation, name) for name in ("v", "g")]
    return flow.elementwise(values, flow.shape(operation))


# One half of the channels gates the other: both halves change together.
@rule("glu")
def _glu(flow: Flow, operation: Operation) -> Labelled:
    """Couple the two halves of an axis."""
    x, shape = flow.argument(operation, "self"), flow.shape(operation)
    axis = flow.argument(operation, "dim") % len(shape)
    halves = []
    for start in (0, shape[axis]):
        labels = []
        for label in x.labels:
            labels.append(label.narrow(axis, start, shape[axis]) if axis in varying(label) else label)
        halves.append(flow.channels.labelled(shape, labels))
    return flow.elementwise(halves, shape)


# Rows are read by number: how many there are must stay. Columns are the channels of the result.
@rule("embedding", "embedding_bag")
def _embedding(flow: Flow, operation: Operation) -> Labelled | list[Labelled]:
    """Return the channels of the columns, beside those of the indices.

    An embedding bag sums over positions, and returns numbers of its own beside the sums.
    """
    weight, indices = flow.argument(operation, "weight"), flow.argument(operation, "indices")
    read = flow.channels.along(flow.channels.fixed_along(weight, [0]), 1)
    shape = flow.shape(operation)
    if operation.operator == "embedding_bag":
        flow.channels.fixed_along(indices, range(len(indices.shape)))
        first, *others = shape
        bag = flow.channels.labelled(first, [_on_axis(read, 1, 2)])
        return [bag, *(Labelled(tuple(one)) for one in others)]
    labels = [label.unsqueeze(-1) for label in indices.labels]
    labels.append(_on_axis(read, len(shape) - 1, len(shape)))
    return flow.channels.labelled(shape, labels)


# Entries that the code picks by number stay where they are, along the axes where they are picked.
@rule(*PICKS)
def _index(flow: Flow, operation: Operation) -> Labelled:
    """Fix the axes that are picked from, and move the channels of all others."""
    x, shape = flow.argument(operation, "self"), flow.shape(operation)
    if operation.operator == "index":
        places = flow.argument(operation, "indices")
    else:
        axis = flow.argument(operation, "dim") % len(x.shape)
        # The same as an index of this axis alone.
        places = [*[None] * axis, flow.argument(operation, "index")]
    picked = {axis: place for axis, place in enumerate(places) if place is not None}
    x = flow.channels.fixed_along(x, picked)
    for place in picked.values():
        flow.channels.fixed_along(place, range(len(place.shape)))
    if operation.operator == "gather":
        return flow.channels.labelled(shape, x.labels)
    # Along those axes nothing varies any more, so that any index will do: all zeros.
    zeros = [None if one is None else torch.zeros(one.shape, dtype=torch.long) for one in places]
    moved = [torch.ops.aten.index.Tensor(label.expand(x.shape), zeros) for label in x.labels]
    return flow.channels.labelled(shape, moved)


# Every gate of a layer has the channels of its hidden state, and the next layer reads those.
@rule(*RECURRENT)
def _recurrent(flow: Flow, operation: Operation) -> list[Labelled]:
    """Couple all gates and states of every layer; return output and last states.

    Raises:
        ConversionError: The state is projected to another size.
    """
    channels, shape = flow.channels, flow.shape(operation)
    weights, biased = flow.argument(operation, "params"), flow.argument(operation, "has_biases")
    layers, directions = flow.argument(operation, "num_layers"), 1 + flow.argument(operation, "bidirectional")
    each = len(weights) // (layers * directions)
    # One weight more projects the state to another size.
    if each != (BIASED_WEIGHTS if biased else PLAIN_WEIGHTS):
        raise flow.refuse(operation)
    hidden = flow.argument(operation, "hx")
    states = hidden if isinstance(hidden, list) else [hidden]
    read = channels.along(flow.argument(operation, "input"), 2)
    for layer in range(layers):
        leaving = []
        for direction in range(directions):
            start = (layer * directions + direction) * each
            leaving.append(_recurrent_cell(channels, read, weights[start : start + each], states))
        read = channels.find(torch.cat(leaving))
    output = channels.labelled(shape[0], [_on_axis(read, 2, 3)])
    last = channels.find(leaving[0])
    return [output, *(channels.labelled(one, [_on_axis(last, 2, 3)]) for one in shape[1:])]


def _recurrent_cell(
    channels: Channels, read: Tensor, weights: Sequence[Labelled], states: Sequence[Labelled]
) -> Tensor:
    """Couple the channels of one layer in one direction; return those of its state."""
    entering, recurrent, *biases = weights
    channels.unify(read, channels.along(entering, 1))
    state = channels.along(recurrent, 1)
    for gates in (entering, recurrent, *biases):
        # The gates lie one after another along axis 0.
        channels.unify(channels.along(gates, 0).view(-1, len(state)), state)
    for one in states:
        channels.fixed_along(one, [0, 1])
        channels.unify(channels.along(one, 2), state)
    return state


# Padding by a constant adds entries that take whatever channel they meet, as in a ResNet's shortcut of
# type A. Other modes repeat entries of the axis itself, as pooling reads them.
@rule(*PADS)
def _pad(flow: Flow, operation: Operation) -> Labelled:
    """Lengthen labels by padding where they vary."""
    value: Labelled = flow.argument(operation, "self")
    pads = flow.argument(operation, "pad")
    if (flow.argument(operation, "mode") or "constant") != "constant":
        return Labelled(flow.shape(operation), flow.pool(value, value.shape).labels)
    labels = []
    for label in value.labels:
        # Two numbers for each axis, from the last one on; an axis along which nothing varies stays 1.
        sides = []
        for axis, before, after in zip(
            reversed(range(len(value.shape))), pads[::2], pads[1::2], strict=False
        ):
            sides += [before, after] if axis in varying(label) else [0, 0]
        labels.append(torch.nn.functional.pad(label, sides, value=FILLER))
    return flow.channels.labelled(flow.shape(operation), labels)


# Along the axis, channels lie one after another; along all others they meet as in a sum.
@rule(*CONCATENATIONS)
def _cat(flow: Flow, operation: Operation) -> Labelled:
    """Lay channels one after another along an axis, and couple them along all others."""
    shape = flow.shape(operation)
    axis = flow.argument(operation, "dim", 0) % len(shape)
    # torch skips empty tensors of another rank.
    tensors: list[Labelled] = flow.argument(operation, "tensors")
    values = [value for value in tensors if len(value.shape) == len(shape)]
    along = [[label for label in value.labels if axis in varying(label)] for value in values]
    labels = [*_met_across(flow, values, axis, shape).labels]
    for turn in range(max(map(len, along))):
        # A value without a label along the axis has a fixed size there.
        fixed = torch.zeros([1] * len(shape), dtype=torch.long)
        parts = [one[turn] if turn < len(one) else fixed for one in along]
        labels.append(_laid_end_to_end(parts, [value.shape[axis] for value in values], axis))
    return flow.channels.labelled(shape, labels)


def _met_across(flow: Flow, values: Sequence[Labelled], axis: int, shape: Sequence[int]) -> Labelled:
    """Return the channels of values along all axes but one, at a single position along that one."""
    others = []
    for value in values:
        labels = tuple(label for label in value.labels if axis not in varying(label))
        others.append(Labelled(_with_size(value.shape, axis, 1), labels))
    return flow.elementwise(others, _with_size(shape, axis, 1))


def _laid_end_to_end(parts: Sequence[Tensor], lengths: Sequence[int], axis: int) -> Tensor:
    """Return labels one after another along an axis, each as long as its value."""
    sizes = [max(lengths_of) for lengths_of in zip(*(part.shape for part in parts), strict=True)]
    grown = []
    for part, length in zip(parts, lengths, strict=True):
        grown.append(part.expand(_with_size(sizes, axis, length)))
    return torch.cat(grown, axis)


def _with_size(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    """Return a shape with another size along one axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


@rule("stack")
def _stack(flow: Flow, operation: Operation) -> Labelled:
    """Couple all tensors, entry by entry."""
    values: list[Labelled] = flow.argument(operation, "tensors")
    shape = flow.shape(operation)
    axis = flow.argument(operation, "dim", 0) % len(shape)
    joined = flow.elementwise(values, values[0].shape)
    return Labelled(shape, tuple(label.unsqueeze(axis) for label in joined.labels))
