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
from torch.utils import _pytree as pytree

from pluribus.errors import PluribusError
from pluribus.mechanisms.graph.export import Graph, Operation
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import select_output
from pluribus.mechanisms.widths.channels import FIXED, Labelled, counted, narrowed, varying
from pluribus.mechanisms.widths.flow import Flow, shapes
from pluribus.mechanisms.widths.rules import (
    RULES as RULES,  # the rules register themselves when they are read
)

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
        """How many channels there are."""
        return len(self.channels)

    def resized(self, factor: float, multiple: int = 1) -> int:
        """Their number in a network of `factor` times the width, `int(factor * size)` as in the
        Packed-Ensembles paper, rounded up to multiples; never below one.
        """
        step = math.lcm(self.multiple, multiple)

        def rounded(count: int) -> int:
            return math.ceil(int(count * factor + 1e-9) / step) * step

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
        """The groups that occur among some channels, in the order of the network."""
        return [self.groups[position] for position in counted(self._owners(channels)) if position >= 0]

    def sizes(self, factor: float, multiples: Mapping[Group, int] | None = None) -> dict[Group, int]:
        """The number of channels of every group in a network of `factor` times the width."""
        return {group: group.resized(factor, (multiples or {}).get(group, 1)) for group in self.groups}

    def size(self, channels: Tensor, sizes: Mapping[Group, int]) -> int:
        """The number of entries that take the place of those of `channels`."""
        total = 0
        for position, count in counted(self._owners(channels)).items():
            group = self.groups[position] if position >= 0 else None
            total += count if group is None else count * sizes[group] // group.size
        return total

    def _owners(self, channels: Tensor) -> Tensor:
        return self.owner[channels.clamp(min=0)]

    def shape(self, value: Labelled, sizes: Mapping[Group, int]) -> tuple[int | None, ...]:
        """The shape of a value with other sizes; None where padding leaves it open."""
        shape: list[int | None] = list(value.shape)
        for label in value.labels:
            axis = varying(label)[-1]
            row = label.movedim(axis, -1).reshape(-1, label.shape[axis])[0]
            shape[axis] = None if bool((label < 0).any()) else self.size(row, sizes)
        return tuple(shape)

    def __str__(self) -> str:
        lines = [f"{self.network.kind}: {len(self.groups)} groups of channels"]
        for group in self.groups:
            tensors = ", ".join(f"{name}[{axis}]" for name, axis in group.axes)
            lines.append(
                f"  {group.size}"
                + f" (a multiple of {group.multiple})" * (group.multiple > 1)
                + f": {tensors}"
            )
        return "\n".join(lines)


def read_widths(network: Network, keep: Iterable[str] = ()) -> Widths:
    """Finds the groups of channels of a network.

    Args:
        network: The module with its example.
        keep: Names of parameters and buffers whose sizes must stay.

    Raises:
        ConversionError: the network has no graph, or an operator of which the rules say nothing.
    """
    graph = network.graph(training=False)
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
    axes = {
        (name, varying(label)[0]): flow.channels.find(label.reshape(-1))
        for name, value in held.items()
        for label in value.labels
    }
    groups = _groups(axes, flow)
    owner = torch.full((len(flow.channels),), -1)
    for position, group in enumerate(groups):
        owner[group.channels] = position
    values = {node: _final(value, flow) for node, value in flow.values.items()}
    return Widths(network, tuple(_with_multiples(groups, owner, flow)), axes, operations, values, owner)


def _inputs(network: Network, graph: Graph, flow: Flow) -> tuple[dict[str, Labelled], list[Any]]:
    """The labels of parameters and buffers by first name, and those of all inputs of the graph."""
    signature = graph.program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    module, held, inputs = network.module, dict[str, Labelled](), []
    every = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    firsts = {id(tensor): name for name, tensor in network.tensors().items()}
    for node in graph.program.graph.nodes:
        if node.op != "placeholder":
            continue
        shape = shapes(node.meta.get("val"))
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
    """Attention of torch has one size for its input and for all of its heads together."""
    for name, layer in module.named_modules():
        weight = held.get(f"{name}.out_proj.weight".lstrip("."))
        if not isinstance(layer, nn.MultiheadAttention) or weight is None:
            continue
        embedded = flow.channels.along(flow.channels.labelled(weight.shape, weight.labels), 0)
        flow.blocks.append(embedded.view(layer.num_heads, -1))
        if not embedded.any():
            for part in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
                inner = held.get(f"{name}.{part}".lstrip("."))
                if inner is not None:
                    flow.channels.fixed_along(Labelled(inner.shape, inner.labels[:1]), [0])


def _is_kernel(module: nn.Module, name: str) -> bool:
    """Whether a tensor belongs to a convolution: of its axes, only two are channels."""
    for part in name.split(".")[:-1]:
        module = module.get_submodule(part)
        if isinstance(module, nn.modules.conv._ConvNd):
            return True
    return isinstance(module, nn.modules.conv._ConvNd)


def _predictions(graph: Graph, outputs: list[Any], network: Network) -> list[Labelled]:
    """The outputs whose sizes must stay: the prediction, or all of them where it cannot be told."""
    signature = graph.program.graph_signature
    kinds = [spec.kind.name for spec in signature.output_specs]
    returned = [value for value, kind in zip(outputs, kinds, strict=True) if kind == "USER_OUTPUT"]
    marks = [torch.empty(0) for _ in returned]
    try:
        prediction = select_output(
            pytree.tree_unflatten(marks, graph.program.call_spec.out_spec), network.output
        )
        chosen = [value for mark, value in zip(marks, returned, strict=True) if mark is prediction]
    except PluribusError:
        chosen = []
    return [value for value in chosen or returned if isinstance(value, Labelled)]


def _final(value: Any, flow: Flow) -> Any:
    if isinstance(value, list | tuple):
        return [_final(one, flow) for one in value]
    if not isinstance(value, Labelled):
        return value
    labels = (narrowed(flow.channels.find(label)) for label in value.labels)
    return Labelled(value.shape, tuple(label for label in labels if label.numel() > 1))


def _groups(axes: Mapping[Axis, Tensor], flow: Flow) -> list[Group]:
    """The channels with the same occurrences, first come first."""
    occurrences: dict[int, list[tuple[int, int]]] = {}
    for position, channels in enumerate(axes.values()):
        for channel, count in counted(channels).items():
            if channel != FIXED:
                occurrences.setdefault(channel, []).append((position, count))
    together: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for channel, places in occurrences.items():
        together.setdefault(tuple(places), []).append(channel)
    names = list(axes)
    groups = []
    for where, members in sorted(together.items(), key=lambda item: item[1][0]):
        if len(where) < 2 or len(members) < 2:
            continue  # nothing but the code reads it, or there is nothing to narrow
        carried = tuple(names[position] for position, _ in where)
        first = axes[carried[0]]
        chosen = set(members)
        order = torch.tensor([c for c in dict.fromkeys(first.tolist()) if c in chosen])
        offset = min(_offset(axes[axis], order) for axis in carried)
        groups.append(Group(carried[0][0], order, carried, offset))
    return groups


def _offset(axis: Tensor, channels: Tensor) -> int:
    start = int((axis == channels[0]).nonzero()[0])
    whole = axis[start : start + len(channels)]
    return start if torch.equal(whole, channels) else 0


def _with_multiples(groups: Sequence[Group], owner: Tensor, flow: Flow) -> Iterator[Group]:
    """The groups with what their sizes must be divisible by: the number of their rows in some label."""
    found = [1] * len(groups)
    for rows, blocks in _rows(flow):
        owners = owner[rows.clamp(min=0)]
        alone = (owners == owners[:, :1]).all(1)
        several = blocks and len(counted(owners)) > 1
        for position, count in counted(owners if several else owners[:, 0][alone]).items():
            if position >= 0 and several:  # the number of all is divisible if that of each group is
                found[position] = math.lcm(found[position], blocks)
            elif position >= 0 and count * rows.shape[1] == groups[position].size:
                found[position] = math.lcm(found[position], count)
    for group, multiple in zip(groups, found, strict=True):
        yield replace(group, multiple=multiple)


def _rows(flow: Flow) -> Iterator[tuple[Tensor, int]]:
    """Labels as the distinct rows along their last axis, `[rows, size]`; how many blocks there must be."""
    for label in flow.splits:
        label = narrowed(flow.channels.find(label))
        axes = varying(label)
        if len(axes) > 1:
            rows = label.movedim(axes[-1], -1).reshape(-1, label.shape[axes[-1]])
            yield torch.unique(rows, dim=0), 0
    for label in flow.blocks:
        yield torch.unique(flow.channels.find(label), dim=0), len(label)
