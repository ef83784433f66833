"""Pack masks: a graph for files whose formats have no bits reads its masks from bytes of eight bits each.

ONNX stores a boolean as a byte, and a mask of floats as four. A table of the bits of every byte turns them
into masks again, once, when the file is loaded.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node

from pluribus.mechanisms.graph.packing import two_values

aten: Any = torch.ops.aten

WORTH = 1024
"""Bytes that packing a mask must save: in a file, the nodes that unpack it take a few hundred."""
MOST_MASKS = 500
"""Masks that are packed: each takes two nodes, and an exported graph has at most 5,000."""


@dataclass(frozen=True)
class Mask:
    """A mask of zeros and one other value.

    Attributes:
        name: Of the buffer.
        tensor: The buffer.
        value: The other value.
    """

    name: str
    tensor: Tensor
    value: float


def pack_masks(module: GraphModule) -> GraphModule:
    """Return a graph that reads its masks from bits; the same one where no mask is worth it.

    Args:
        module: A graph that was compacted; not changed.
    """
    groups = dict[tuple[torch.dtype, float], list[Mask]]()
    for mask in _masks(module):
        groups.setdefault((mask.tensor.dtype, mask.value), []).append(mask)
    if not groups:
        return module
    root, graph, copies = nn.Module(), Graph(), dict[Node, Node]()
    numbers = torch.arange(256).unsqueeze(1)
    root.register_buffer("bits", (numbers >> torch.arange(7, -1, -1)) % 2 == 1)
    table, found = graph.get_attr("bits"), dict[str, Node]()
    for masks in groups.values():
        found |= _unpacked(graph, root, table, masks)
    for node in module.graph.nodes:
        name = str(node.target)
        if node.op == "get_attr" and name in found:
            copies[node] = found[name]
            continue
        if node.op in ("get_attr", "call_module"):
            setattr(root, name, getattr(module, name))
        copies[node] = graph.node_copy(node, copies.__getitem__)
    return GraphModule(root, graph).eval()


def _masks(module: GraphModule) -> list[Mask]:
    """Return the buffers of a graph that are worth packing; none where they are too many."""
    found = list[Mask]()
    for name, tensor in module.named_buffers():
        saved = tensor.nbytes - tensor.numel() // 8
        # Another order of memory could not be restored, and parts of a row's graph are its own.
        if saved < WORTH or not tensor.is_contiguous() or "." in name:
            continue
        values = two_values(tensor)
        if values and values[0] == 0:
            found.append(Mask(name, tensor, values[1]))
    return found if len(found) <= MOST_MASKS else []


def _unpacked(graph: Graph, root: nn.Module, table: Node, masks: list[Mask]) -> dict[str, Node]:
    """Add the nodes that unpack masks of one type and value, and return them by the names of the masks.

    Args:
        graph: It is changed.
        root: Gets the bits.
        table: The node of the bits of each byte.
        masks: At least one.
    """
    name, dtype = f"packed_{len(list(root.buffers()))}", masks[0].tensor.dtype
    # Every mask begins with a byte of its own.
    parts = [np.packbits((mask.tensor != 0).cpu().numpy().reshape(-1)) for mask in masks]
    root.register_buffer(name, torch.from_numpy(np.concatenate(parts)).to(masks[0].tensor.device))
    places = graph.call_function(aten._to_copy.default, (graph.get_attr(name),), {"dtype": torch.int32})
    rows = graph.call_function(aten.index_select.default, (table, 0, places))
    values = graph.call_function(aten.view.default, (rows, [-1]))
    if dtype is not torch.bool:
        values = graph.call_function(aten._to_copy.default, (values,), {"dtype": dtype})
        factor = masks[0].value if dtype.is_floating_point else int(masks[0].value)
        values = graph.call_function(aten.mul.Tensor, (values, factor))
    found, start = dict[str, Node](), 0
    for mask, part in zip(masks, parts, strict=True):
        shape = list(mask.tensor.shape)
        own = graph.call_function(aten.slice.Tensor, (values, 0, start, start + prod(shape)))
        found[mask.name] = graph.call_function(aten.view.default, (own, shape))
        start += 8 * len(part)
    return found
