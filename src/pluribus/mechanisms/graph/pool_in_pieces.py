"""Pool in pieces: a wide convolution that is pooled at once runs on some of its channels at a time.

Heads of exits project large maps to hundreds of channels and average over the map. The projection of the
first exit of ResNet-18 has 64 MB for 32 samples, which the system hands out page by page in every call: it
took three times as long as in four pieces, whose memory is used again.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from pluribus.mechanisms.graph.operators import operator_name

aten: Any = torch.ops.aten

Forms = Mapping[str, tuple[torch.Size, torch.dtype]]
"""Shape and type of values by the name of their step."""

PIECE = 1 << 19
"""Bytes of a piece for one sample. glibc keeps memory up to 32 MB, which a piece reaches with 64 samples."""

# They treat every channel apart, and keep the axis of channels where they keep it.
_ELEMENTWISE = frozenset(("relu", "relu_", "gelu", "silu"))
_POOLS = frozenset(("mean", "adaptive_avg_pool2d"))


def wide_pooled(graph: Graph) -> list[list[Node]]:
    """Return the chains of steps from a convolution to the pooling that alone reads it."""
    chains = []
    for node in graph.nodes:
        if operator_name(node) == "conv2d" and (chain := _chain(node)):
            chains.append(chain)
    return chains


def pool_in_pieces(graph: Graph, chains: list[list[Node]], forms: Forms) -> None:
    """Divide the channels of those convolutions whose results are large.

    Args:
        graph: It is changed.
        chains: Of `wide_pooled`.
        forms: Of the graph.
    """
    for chain in chains:
        first, last = chain[0], chain[-1]
        if not _keeps_channels(chain, forms):
            continue
        shape, dtype = forms[first.name]
        pieces = -(-shape[1:].numel() * dtype.itemsize // PIECE)
        if pieces < 2 or shape[1] % pieces:
            continue
        with graph.inserting_after(last):
            joined = graph.call_function(aten.cat.default, ([], 1))
        last.replace_all_uses_with(joined)
        with graph.inserting_before(joined):
            width = shape[1] // pieces
            parts = [_part(graph, chain, start, start + width) for start in range(0, shape[1], width)]
        joined.args = (parts, 1)
        for node in reversed(chain):
            graph.erase_node(node)


def _chain(convolution: Node) -> list[Node]:
    """Return the steps from a convolution to its pooling; empty where it is not pooled at once."""
    if not _can_be_cut(convolution):
        return []
    chain = [convolution]
    while len(chain[-1].users) == 1:
        (reader,) = chain[-1].users
        name = operator_name(reader)
        # A step that reads other values too may need all channels.
        if reader.all_input_nodes != [chain[-1]] or reader.args[0] is not chain[-1]:
            return []
        chain.append(reader)
        if name in _POOLS:
            return chain
        if name not in _ELEMENTWISE and not (name == "flatten" and reader.args[1:] in ((2,), (2, -1))):
            return []
    return []


def _can_be_cut(convolution: Node) -> bool:
    """Return whether a convolution is one group with constant weights, of which rows can be taken."""
    groups = convolution.args[6] if len(convolution.args) > 6 else convolution.kwargs.get("groups", 1)
    # By name, weights would stay whole in every piece.
    if len(convolution.args) < 2 or convolution.kwargs.get("bias") is not None:
        return False
    constants = [one for one in convolution.args[1:3] if one is not None]
    return bool(groups == 1) and all(isinstance(one, Node) and one.op == "get_attr" for one in constants)


def _keeps_channels(chain: list[Node], forms: Forms) -> bool:
    """Return whether pooling leaves samples and channels as the first two axes."""
    first, *_, before, pool = (chain[0], *chain)
    if first.name not in forms or before.name not in forms:
        return False
    axes = pool.args[1] if len(pool.args) > 1 else None
    ranks = [len(forms[one.name][0]) for one in (first, before)]
    # Without a batch, axis 1 is the height of a map; so it is for a pooling behind `flatten`.
    if operator_name(pool) == "adaptive_avg_pool2d":
        return ranks == [4, 4]
    if ranks[0] != 4 or not isinstance(axes, list | tuple):
        return False
    return all(axis % ranks[1] > 1 for axis in axes)


def _part(graph: Graph, chain: list[Node], start: int, end: int) -> Node:
    """Add the steps of a chain for some channels."""
    first = chain[0]
    given, *constants = first.args[:3]
    cut = [
        one if one is None else graph.call_function(aten.slice.Tensor, (one, 0, start, end))
        for one in constants
    ]
    value = graph.create_node(
        "call_function", first.target, (given, *cut, *first.args[3:]), dict(first.kwargs)
    )
    for node in chain[1:]:
        value = graph.create_node("call_function", node.target, (value, *node.args[1:]), dict(node.kwargs))
    return value
