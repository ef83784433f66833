"""Widths: the groups of channels of a network that change their number together.

Read from the exported graph: parameters begin with channels of their own along every axis, operators
couple them (`flow.py`), and the sizes of inputs, outputs and of what the code indexes by number are
fixed. Channels that occur in the same axes of the same tensors form a group, which is resized or
sliced as a whole.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from pluribus.errors import PluribusError
from pluribus.mechanisms.graph.operation import Graph, Operation
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import select_output
from pluribus.mechanisms.network.torch_private import Convolution, tree_unflatten
from pluribus.mechanisms.widths.channels import FIXED, Labelled, counted, narrowed, varying
from pluribus.mechanisms.widths.flow import Flow, shapes
from pluribus.mechanisms.widths.rules import (
    RULES as RULES,  # the rules register themselves when they are read
)

# `0.3 * 10` is 2.999…, which must count as 3.
ROUNDING = 1e-9

Axis = tuple[str, int]
"""The first name of a parameter or buffer, and the position of one of its axes."""


@dataclass(frozen=True, eq=False)
class Group:
    """Channels that occur together.

    Attributes:
        name: The first tensor that carries them.
        channels: Their numbers, in the order of that tensor, `[size]`.
        axes: All axes that carry them.
        offset: How many channels lie before them where they lie foremost, as in a sum with zero padding.
        multiple: What their number must be divisible by: heads, and groups of a norm or convolution.
    """

    name: str
    channels: Tensor
    axes: tuple[Axis, ...]
    offset: int = 0
    multiple: int = 1

    @property
    def size(self) -> int:
        """Return how many channels there are."""
        return len(self.channels)

    def resized(self, factor: float, multiple: int = 1) -> int:
        """Return their number in a network of `factor` times the width.

        It is `int(factor * size)` as in the Packed-Ensembles paper, rounded up to multiples; at least one.
        """
        step = math.lcm(self.multiple, multiple)

        def rounded(count: int) -> int:
            return math.ceil(int(count * factor + ROUNDING) / step) * step

        # Rounding end and start, and not the size, keeps groups that lie side by side gapless.
        width = rounded(self.offset + self.size) - rounded(self.offset)
        return width if self.offset else max(step, width)


@dataclass(frozen=True, eq=False)
class Widths:
    """The groups of a network, and which axis of which tensor carries which.

    Attributes:
        network: Whose widths these are.
        groups: In the network's order.
        axes: The channels along every axis of every parameter and buffer; 0 keeps its place.
        operations: The operators of the data flow in eval mode.
        values: By operator's node, the labels of what it computes.
        owner: The position of every channel's group in `groups`; -1 where it is fixed.
    """

    network: Network
    groups: tuple[Group, ...]
    axes: Mapping[Axis, Tensor]
    operations: Mapping[Node, Operation]
    values: Mapping[Node, Any]
    owner: Tensor

    def groups_in(self, channels: Tensor) -> list[Group]:
        """Return the groups that occur among some channels, in the order of the network.

        Args:
            channels: Numbers of channels, of any shape.
        """
        return [self.groups[position] for position in counted(self._owners(channels)) if position >= 0]

    def sizes(self, factor: float, multiples: Mapping[Group, int] | None = None) -> dict[Group, int]:
        """Return the number of channels of every group in a network of `factor` times the width.

        Args:
            factor: Of every width, above 0.
            multiples: Further divisors of single groups.
        """
        divisors = multiples or {}
        return {group: group.resized(factor, divisors.get(group, 1)) for group in self.groups}

    def size(self, channels: Tensor, sizes: Mapping[Group, int]) -> int:
        """Return the number of entries that take the place of those of `channels`.

        Args:
            channels: Along one axis, `[size]`.
            sizes: The new number of channels of every group.
        """
        total = 0
        for position, count in counted(self._owners(channels)).items():
            if position < 0:
                total += count
                continue
            # A channel that occurs several times along the axis, as after a repeat, does so again.
            group = self.groups[position]
            total += count * sizes[group] // group.size
        return total

    def _owners(self, channels: Tensor) -> Tensor:
        """Return the position of every channel's group; that of padding is that of fixed channels."""
        return self.owner[channels.clamp(min=0)]

    def shape(self, value: Labelled, sizes: Mapping[Group, int]) -> tuple[int | None, ...]:
        """Return the shape of a value with other sizes.

        Args:
            value: With its labels.
            sizes: The new number of channels of every group.

        Returns:
            The size of every axis; None where padding leaves it open.
        """
        shape: list[int | None] = list(value.shape)
        for label in value.labels:
            # All axes but the last keep their size, as heads do.
            axis = varying(label)[-1]
            row = label.movedim(axis, -1).reshape(-1, label.shape[axis])[0]
            shape[axis] = None if bool((label < 0).any()) else self.size(row, sizes)
        return tuple(shape)

    def __str__(self) -> str:
        lines = [f"{self.network.kind}: {len(self.groups)} groups of channels"]
        for group in self.groups:
            tensors = ", ".join(f"{name}[{axis}]" for name, axis in group.axes)
            multiple = f" (a multiple of {group.multiple})" if group.multiple > 1 else ""
            lines.append(f"  {group.size}{multiple}: {tensors}")
        return "\n".join(lines)


def read_widths(network: Network, keep: Iterable[str] = ()) -> Widths:
    """Find the groups of channels of a network.

    Args:
        network: The module with its example.
        keep: Names of parameters and buffers whose sizes must stay.

    Raises:
        ConversionError: The network has no graph, or an operator without a rule.
    """
    # Widths do not depend on the size of a batch, and a fixed one is read faster.
    graph = network.graph(training=False, any_batch=False)
    operations = {operation.node: operation for operation in graph.operations()}
    flow = Flow(operations)
    held, inputs = _inputs(network, graph, flow)
    flow.held = len(flow.channels)
    for name in keep:
        if name in held:
            flow.channels.fixed_along(held[name], range(len(held[name].shape)))
    outputs = flow.run(graph.program.graph_module, inputs)
    for value in _predictions(graph, outputs, network):
        flow.channels.fixed_along(value, range(len(value.shape)))
    _match_attention(network.module, held, flow)
    # Channels are known now: nothing below couples any more.
    axes: dict[Axis, Tensor] = {}
    for name, value in held.items():
        for label in value.labels:
            axes[name, varying(label)[0]] = flow.channels.find(label.reshape(-1))
    groups = _groups(axes)
    owner = torch.full((len(flow.channels),), -1)
    for position, group in enumerate(groups):
        owner[group.channels] = position
    values = {node: _final(value, flow) for node, value in flow.values.items()}
    return Widths(network, tuple(_with_multiples(groups, owner, flow)), axes, operations, values, owner)


def _inputs(network: Network, graph: Graph, flow: Flow) -> tuple[dict[str, Labelled], list[Any]]:
    """Return the labels of parameters and buffers, and those of all inputs of the graph.

    Returns:
        By first name, the labels of the network's tensors, which have channels of their own along every
        axis; and the labels of all placeholders in their order, None for what is no tensor.
    """
    signature = graph.program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    module, held, inputs = network.module, dict[str, Labelled](), []
    # Tied tensors have several names and one set of channels.
    parameters = dict(module.named_parameters(remove_duplicate=False))
    every = {**parameters, **dict(module.named_buffers(remove_duplicate=False))}
    firsts = {id(tensor): name for name, tensor in network.tensors().items()}
    for node in graph.program.graph.nodes:
        if node.op != "placeholder":
            continue
        shape = shapes(node.meta.get("val"))
        # The exported root holds the network under this name.
        name = names.get(node.name, "").removeprefix("network.")
        if not name:
            inputs.append(None if shape is None else Labelled(shape))
            continue
        first = firsts[id(every[name])]
        if first not in held:
            held[first] = flow.channels.fresh(shape, 2 if _is_kernel(module, first) else None)
        inputs.append(held[first])
    return held, inputs


def _match_attention(module: nn.Module, held: Mapping[str, Labelled], flow: Flow) -> None:
    """Couple the widths of torch's attention, which has one size for its input and for all of its heads.

    Its code reads `embed_dim` for both, which the data flow alone does not tell.
    """
    for name, layer in module.named_modules():
        weight = held.get(f"{name}.out_proj.weight".lstrip("."))
        if not isinstance(layer, nn.MultiheadAttention) or weight is None:
            continue
        embedded = flow.channels.along(flow.channels.labelled(weight.shape, weight.labels), 0)
        flow.blocks.append(embedded.view(layer.num_heads, -1))
        # Where the input's size is fixed, so is that of the heads.
        if not embedded.any():
            _fix_projections(name, held, flow)


def _fix_projections(name: str, held: Mapping[str, Labelled], flow: Flow) -> None:
    """Fix the number of rows of an attention's projections.

    Args:
        name: Of the attention layer.
        held: The labels of the network's tensors.
        flow: After it has run.
    """
    for part in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
        inner = held.get(f"{name}.{part}".lstrip("."))
        if inner is not None:
            flow.channels.fixed_along(Labelled(inner.shape, inner.labels[:1]), [0])


def _is_kernel(module: nn.Module, name: str) -> bool:
    """Return whether a tensor belongs to a convolution: of its axes, only two are channels."""
    # A parametrised weight lies below the convolution, in `parametrizations.weight`.
    path = name.split(".")[:-1]
    holders = [module.get_submodule(".".join(path[:depth])) for depth in range(len(path) + 1)]
    return any(isinstance(holder, Convolution) for holder in holders)


def _predictions(graph: Graph, outputs: list[Any], network: Network) -> list[Labelled]:
    """Return the outputs whose sizes must stay.

    It is the prediction, or all outputs where it cannot be told which of them that is.
    """
    signature = graph.program.graph_signature
    kinds = [spec.kind.name for spec in signature.output_specs]
    returned = [value for value, kind in zip(outputs, kinds, strict=True) if kind == "USER_OUTPUT"]
    # Marks go through the user's choice of an output in place of what is returned.
    marks = [torch.empty(0) for _ in returned]
    try:
        prediction = select_output(tree_unflatten(marks, graph.program.call_spec.out_spec), network.output)
        chosen = [value for mark, value in zip(marks, returned, strict=True) if mark is prediction]
    except PluribusError:
        chosen = []
    return [value for value in chosen or returned if isinstance(value, Labelled)]


def _final(value: Any, flow: Flow) -> Any:
    """Return the labels of a value with the classes that its channels have in the end.

    Args:
        value: A value of the flow, or a list of them; what is no tensor stays.
        flow: After it has run.
    """
    if isinstance(value, list | tuple):
        return [_final(one, flow) for one in value]
    if not isinstance(value, Labelled):
        return value
    labels = (narrowed(flow.channels.find(label)) for label in value.labels)
    return Labelled(value.shape, tuple(label for label in labels if label.numel() > 1))


def _groups(axes: Mapping[Axis, Tensor]) -> list[Group]:
    """Return the channels with the same occurrences, first come first.

    Channels that occur equally often in the same axes are narrowed together: none of them is in a tensor
    that another one is not in.
    """
    classes, parents = _classes(axes)
    names, groups = list(axes), []
    found, places = torch.unique(classes, return_inverse=True)
    order = places.argsort(stable=True)
    parts = order.split(torch.bincount(places, minlength=len(found)).tolist())
    # Groups come in the order of their first channels.
    for number, members in sorted(zip(found.tolist(), parts, strict=True), key=lambda one: int(one[1][0])):
        where = list[int]()
        while number:
            number, position = parents[number]
            where.append(position)
        # Nothing but the code reads the one, and the other has nothing to narrow.
        if len(where) < 2 or len(members) < 2:
            continue
        carried = tuple(names[position] for position in reversed(where))
        groups.append(_group(carried, set(members.tolist()), axes))
    return groups


def _classes(axes: Mapping[Axis, Tensor]) -> tuple[Tensor, dict[int, tuple[int, int]]]:
    """Number the sets of channels that occur equally often in the same axes.

    Returns:
        By channel the number of its class, 0 for those that no axis has; and by class the number that its
        channels had before the last axis that has them, and the position of that axis.
    """
    largest = max((int(channels.max()) for channels in axes.values() if channels.numel()), default=0)
    classes, parents = torch.zeros(largest + 1, dtype=torch.long), dict[int, tuple[int, int]]()
    for position, channels in enumerate(axes.values()):
        held, counts = torch.unique(channels[channels != FIXED], return_counts=True)
        if not len(held):
            continue
        # A class falls apart by how often its channels occur in this axis.
        most = int(counts.max()) + 1
        kinds, places = torch.unique(classes[held] * most + counts, return_inverse=True)
        first = len(parents) + 1
        for number, kind in enumerate(kinds.tolist()):
            parents[first + number] = kind // most, position
        classes[held] = first + places
    return classes, parents


def _group(carried: tuple[Axis, ...], members: set[int], axes: Mapping[Axis, Tensor]) -> Group:
    """Return a group with its channels in the order of the first axis that carries them.

    Args:
        carried: The axes that carry the channels.
        members: The channels.
        axes: The channels along every axis.
    """
    in_order = dict.fromkeys(axes[carried[0]].tolist())
    order = torch.tensor([channel for channel in in_order if channel in members])
    offset = min(_offset(axes[axis], order) for axis in carried)
    return Group(carried[0][0], order, carried, offset)


def _offset(axis: Tensor, channels: Tensor) -> int:
    """Return how many entries of an axis lie before some channels; 0 where they are scattered."""
    start = int((axis == channels[0]).nonzero()[0])
    whole = axis[start : start + len(channels)]
    return start if torch.equal(whole, channels) else 0


def _with_multiples(groups: Sequence[Group], owner: Tensor, flow: Flow) -> Iterator[Group]:
    """Yield the groups with what their sizes must be divisible by.

    That is the number of rows in which a label holds a whole group, such as heads, or the number of
    blocks that several groups share.
    """
    found = [1] * len(groups)
    for rows, blocks in _rows(flow):
        owners = owner[rows.clamp(min=0)]
        if blocks and len(counted(owners)) > 1:
            # The number of all is divisible if that of each group is.
            for position in counted(owners[owners >= 0]):
                found[position] = math.lcm(found[position], blocks)
            continue
        alone = (owners == owners[:, :1]).all(1) & (owners[:, 0] >= 0)
        for position, count in counted(owners[:, 0][alone]).items():
            if count * rows.shape[1] == groups[position].size:
                found[position] = math.lcm(found[position], count)
    for group, multiple in zip(groups, found, strict=True):
        yield replace(group, multiple=multiple)


def _rows(flow: Flow) -> Iterator[tuple[Tensor, int]]:
    """Yield labels as the distinct rows along their last axis, `[rows, size]`, and the number of blocks.

    The number is 0 where there need be none.
    """
    for label in flow.splits:
        label = narrowed(flow.channels.find(label))
        axes = varying(label)
        if len(axes) > 1:
            rows = label.movedim(axes[-1], -1).reshape(-1, label.shape[axes[-1]])
            yield torch.unique(rows, dim=0), 0
    for label in flow.blocks:
        yield torch.unique(flow.channels.find(label), dim=0), len(label)
