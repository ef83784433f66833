"""Rules: what single operators do to channels, products, norms, attention and recurrence among them."""

import torch
from torch import Tensor

from pluribus.mechanisms.graph.export import Operation
from pluribus.mechanisms.widths.channels import FILLER, Labelled, varying
from pluribus.mechanisms.widths.flow import RULES as RULES
from pluribus.mechanisms.widths.flow import Flow, rule


@rule("linear")
def _linear(flow: Flow, operation: Operation) -> Labelled:
    x, weight, bias = (flow.argument(operation, name) for name in ("input", "weight", "bias"))
    outer = list(range(len(x.shape) - 1))
    wide, summed = len(outer), len(outer) + 1
    kept = [*outer, wide] if len(weight.shape) == 2 else outer
    terms = [(x, [*outer, summed]), (weight, [wide, summed][-len(weight.shape) :])]
    if bias is not None:
        terms.append((bias, kept[-len(bias.shape) :]))
    return flow.channels.join(terms, flow.shape(operation), kept)


def product(flow: Flow, one: Labelled, other: Labelled, shape: tuple[int, ...]) -> Labelled:
    """`one @ other`, with axes in front that broadcast."""
    front = max(len(one.shape), len(other.shape)) - 2
    rows, columns, summed = front, front + 1, front + 2
    letters = [
        [summed] if len(one.shape) == 1 else [*range(front - len(one.shape) + 2, front), rows, summed],
        [summed] if len(other.shape) == 1 else [*range(front - len(other.shape) + 2, front), summed, columns],
    ]
    kept = list(range(max(front, 0)))
    kept += [rows] * (len(one.shape) > 1) + [columns] * (len(other.shape) > 1)
    return flow.channels.join([(one, letters[0]), (other, letters[1])], shape, kept)


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "__matmul__")
def _matmul(flow: Flow, operation: Operation) -> Labelled:
    one, other = (flow.resolve(argument) for argument in operation.node.args[:2])
    return product(flow, one, other, flow.shape(operation))


@rule("addmm", "baddbmm", "addmv")
def _addmm(flow: Flow, operation: Operation) -> Labelled:
    bias, one, other = (flow.resolve(argument) for argument in operation.node.args[:3])
    shape = flow.shape(operation)
    return flow.elementwise([product(flow, one, other, shape), bias], shape)


@rule("einsum")
def _einsum(flow: Flow, operation: Operation) -> Labelled:
    equation = str(operation.node.args[0]).replace(" ", "")
    inputs, arrow, output = equation.partition("->")
    terms = inputs.split(",")
    if not arrow or "." in equation or any(len(set(term)) < len(term) for term in terms):
        raise flow.refuse(operation)
    order = sorted(set(inputs) - {","}, key=lambda letter: (letter not in output, inputs.index(letter)))
    values = flow.resolve(operation.node.args[1])
    operands = [
        (value, [order.index(letter) for letter in term]) for value, term in zip(values, terms, strict=True)
    ]
    return flow.channels.join(operands, flow.shape(operation), [order.index(letter) for letter in output])


@rule("scaled_dot_product_attention")
def _attention(flow: Flow, operation: Operation) -> Labelled:
    query, key, value, mask = (
        flow.argument(operation, name) for name in ("query", "key", "value", "attn_mask")
    )
    swapped = Labelled(
        (*key.shape[:-2], key.shape[-1], key.shape[-2]),
        tuple(label.transpose(-1, -2) for label in key.labels),
    )
    shape = (*query.shape[:-1], key.shape[-2])
    scores = product(flow, query, swapped, shape)
    if isinstance(mask, Labelled):
        scores = flow.elementwise([scores, mask], shape)
    return product(flow, scores, value, flow.shape(operation))


@rule("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _convolution(flow: Flow, operation: Operation) -> Labelled:
    x, weight, bias = (flow.argument(operation, name) for name in ("input", "weight", "bias"))
    groups, channels = flow.argument(operation, "groups"), flow.channels
    transposed = "transpose" in operation.operator
    batched = len(x.shape) == len(weight.shape)
    axis = 1 if batched else 0
    read = channels.along(x, axis)
    weight = channels.fixed_along(weight, range(2, len(weight.shape)))
    first, second = channels.along(weight, 0), channels.along(weight, 1)
    entering, leaving = (first, second) if transposed else (second, first)
    if groups == 1:
        channels.unify(read, entering)
    elif transposed and groups == len(read):
        channels.unify(read, entering)
        channels.fix(leaving)
        leaving = read.repeat_interleave(len(leaving))
    elif transposed:
        channels.unify(read, entering)
        leaving = leaving.repeat(groups)
        flow.blocks.append(read.view(groups, -1))
    elif groups == len(read):  # depthwise: each channel is its own output, or several
        channels.unify(read.repeat_interleave(len(leaving) // groups), leaving)
    else:
        channels.unify(read.view(groups, -1), entering)
        flow.blocks.append(leaving.view(groups, -1))
    if bias is not None:
        channels.unify(leaving, channels.along(bias, 0))
    shape = flow.shape(operation)
    return channels.labelled(shape, [_on_axis(leaving, axis, len(shape))])


def _on_axis(label: Tensor, axis: int, rank: int) -> Tensor:
    return label.reshape([-1 if one == axis else 1 for one in range(rank)])


@rule("batch_norm", "instance_norm", "group_norm", "prelu")
def _channel_norm(flow: Flow, operation: Operation) -> Labelled:
    x: Labelled = flow.argument(operation, "input") or flow.argument(operation, "self")
    x = flow.channels.tie(x, range(2, len(x.shape)))
    letters = list(range(len(x.shape)))
    terms = [(x, letters)]
    for name in ("weight", "bias", "running_mean", "running_var"):
        value = flow.argument(operation, name)
        if value is not None:
            terms.append((value, letters[:2][-1:]))
    result = flow.channels.join(terms, x.shape, letters)
    groups = flow.argument(operation, "num_groups")
    if groups is not None and groups < x.shape[1]:
        flow.blocks.append(flow.channels.along(result, 1).view(groups, -1))
    return result


@rule("layer_norm", "rms_norm")
def _layer_norm(flow: Flow, operation: Operation) -> Labelled:
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
    values = [flow.argument(operation, name) for name in ("v", "g")]
    return flow.elementwise(values, flow.shape(operation))


@rule("glu")
def _glu(flow: Flow, operation: Operation) -> Labelled:
    x, shape = flow.argument(operation, "self"), flow.shape(operation)
    axis = flow.argument(operation, "dim") % len(shape)
    halves = [
        flow.channels.labelled(
            shape,
            (
                label.narrow(axis, start, shape[axis]) if axis in varying(label) else label
                for label in x.labels
            ),
        )
        for start in (0, shape[axis])
    ]
    return flow.elementwise(halves, shape)


@rule("embedding", "embedding_bag")
def _embedding(flow: Flow, operation: Operation) -> Labelled | list[Labelled]:
    weight, indices = flow.argument(operation, "weight"), flow.argument(operation, "indices")
    read = flow.channels.along(flow.channels.fixed_along(weight, [0]), 1)
    shape = flow.shape(operation)
    if operation.operator == "embedding_bag":
        flow.channels.fixed_along(indices, range(len(indices.shape)))
        first, *others = shape
        bag = flow.channels.labelled(first, [_on_axis(read, 1, 2)])
        return [bag, *(Labelled(tuple(one)) for one in others)]
    labels = [*(label.unsqueeze(-1) for label in indices.labels), _on_axis(read, len(shape) - 1, len(shape))]
    return flow.channels.labelled(shape, labels)


@rule("index", "index_select", "gather")
def _index(flow: Flow, operation: Operation) -> Labelled:
    """Entries that the code picks by number stay where they are."""
    x, shape = flow.argument(operation, "self"), flow.shape(operation)
    if operation.operator == "index":
        places = flow.argument(operation, "indices")
        axes = [axis for axis, place in enumerate(places) if place is not None]
    else:
        places, axes = [flow.argument(operation, "index")], [flow.argument(operation, "dim") % len(x.shape)]
    x = flow.channels.fixed_along(x, axes)
    for place in places:
        if place is not None:
            flow.channels.fixed_along(place, range(len(place.shape)))
    if operation.operator == "gather":
        return flow.channels.labelled(shape, x.labels)
    if operation.operator == "index_select":
        places = [*[None] * axes[0], *places]
    zeros = [None if p is None else torch.zeros(p.shape, dtype=torch.long) for p in places]
    moved = [torch.ops.aten.index.Tensor(label.expand(x.shape), zeros) for label in x.labels]
    return flow.channels.labelled(shape, moved)


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(flow: Flow, operation: Operation) -> list[Labelled]:
    """Every gate of a layer has the channels of its hidden state."""
    channels, shape = flow.channels, flow.shape(operation)
    hidden = flow.argument(operation, "hx")
    weights, biased = flow.argument(operation, "params"), flow.argument(operation, "has_biases")
    layers, directions = flow.argument(operation, "num_layers"), 1 + flow.argument(operation, "bidirectional")
    each = len(weights) // (layers * directions)
    if each != (4 if biased else 2):  # projected to another size
        raise flow.refuse(operation)
    states = hidden if isinstance(hidden, list) else [hidden]
    read = channels.along(flow.argument(operation, "input"), 2)
    for layer in range(layers):
        leaving = []
        for direction in range(directions):
            start = (layer * directions + direction) * each
            entering, recurrent, *biases = weights[start : start + each]
            channels.unify(read, channels.along(entering, 1))
            state = channels.along(recurrent, 1)
            for gates in (entering, recurrent, *biases):
                channels.unify(channels.along(gates, 0).view(-1, len(state)), state)
            for one in states:
                channels.fixed_along(one, [0, 1])
                channels.unify(channels.along(one, 2), state)
            leaving.append(state)
        read = channels.find(torch.cat(leaving))
    output = channels.labelled(shape[0], [_on_axis(read, 2, 3)])
    last = channels.find(leaving[0])
    return [output, *(channels.labelled(one, [_on_axis(last, 2, 3)]) for one in shape[1:])]


@rule("constant_pad_nd", "pad")
def _pad(flow: Flow, operation: Operation) -> Labelled:
    value: Labelled = flow.argument(operation, "self")
    pads = flow.argument(operation, "pad")
    if (flow.argument(operation, "mode") or "constant") != "constant":
        return Labelled(flow.shape(operation), flow.pool(value, value.shape).labels)
    labels = []
    for label in value.labels:
        axes = reversed(range(len(value.shape)))
        steps = zip(axes, pads[::2], pads[1::2], strict=False)
        sides = [side if axis in varying(label) else 0 for axis, *pair in steps for side in pair]
        labels.append(torch.nn.functional.pad(label, sides, value=FILLER))
    return flow.channels.labelled(flow.shape(operation), labels)


@rule("cat", "concat", "concatenate")
def _cat(flow: Flow, operation: Operation) -> Labelled:
    values: list[Labelled] = flow.argument(operation, "tensors")
    shape = flow.shape(operation)
    values = [value for value in values if len(value.shape) == len(shape)]
    axis = flow.argument(operation, "dim", 0) % len(shape)
    others = [
        Labelled(
            tuple(1 if one == axis else size for one, size in enumerate(value.shape)),
            tuple(label for label in value.labels if axis not in varying(label)),
        )
        for value in values
    ]
    joined = flow.elementwise(others, [1 if one == axis else size for one, size in enumerate(shape)])
    labels = list(joined.labels)
    own = [[label for label in value.labels if axis in varying(label)] for value in values]
    for turn in range(max(map(len, own))):
        parts = [
            one[turn] if turn < len(one) else torch.zeros([1] * len(shape), dtype=torch.long) for one in own
        ]
        sizes = [max(part.shape[a] for part in parts) for a in range(len(shape))]
        grown = [
            part.expand([value.shape[axis] if a == axis else size for a, size in enumerate(sizes)])
            for part, value in zip(parts, values, strict=True)
        ]
        labels.append(torch.cat(grown, axis))
    return flow.channels.labelled(shape, labels)


@rule("stack")
def _stack(flow: Flow, operation: Operation) -> Labelled:
    values: list[Labelled] = flow.argument(operation, "tensors")
    shape = flow.shape(operation)
    axis = flow.argument(operation, "dim", 0) % len(shape)
    joined = flow.elementwise(values, values[0].shape)
    return Labelled(shape, tuple(label.unsqueeze(axis) for label in joined.labels))
