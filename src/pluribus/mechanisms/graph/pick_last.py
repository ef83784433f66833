"""Pick last: channels are picked out of maps that have them last in memory, and stay last.

`index_select` of channels that lie last copies such a map into the other order, picks, and leaves the next
convolution to change the order again: 1.70 ms for 40 of 64 channels of 32x32 and 32 samples. Picked as the
columns of a matrix with a row for each pixel they take 0.35 ms.
"""

from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node

from pluribus.mechanisms.graph.builder import attribute
from pluribus.mechanisms.graph.export import Operation
from pluribus.mechanisms.graph.operators import SYM_SIZE, is_pointwise, operator_name
from pluribus.mechanisms.graph.pool_in_pieces import Forms

aten: Any = torch.ops.aten

# They keep the order of what they read.
_KEEPING = frozenset(("batch_norm", "max_pool2d", "avg_pool2d", "dropout", "index_select"))


def pick_last(graph: Graph, module: nn.Module, forms: Forms) -> None:
    """Write picks of channels in another way, where channels lie last.

    An order that was taken for another changes the time, and no numbers.

    Args:
        graph: It is changed.
        module: Holds what the graph reads.
        forms: Shape and type of values by the name of their step.
    """
    last = set[Node]()
    for node in list(graph.nodes):
        if node.name in forms and len(forms[node.name][0]) == 4 and _has_channels_last(node, module, last):
            last.add(node)
            if _is_pick(node):
                last.add(_written_again(graph, node))


def _is_pick(node: Node) -> bool:
    """Return whether a step picks along axis 1."""
    return operator_name(node) == "index_select" and Operation(node, "", "", "").argument("dim") == 1


def _has_channels_last(node: Node, module: nn.Module, last: set[Node]) -> bool:
    """Return whether the channels of a map lie last.

    Args:
        node: The step that makes the map.
        module: Holds what the graph reads.
        last: The steps before it whose maps are so.
    """
    name, operation = operator_name(node), Operation(node, "", "", "")
    if name == "conv2d":
        # Convolutions take the order of their kernel or of what they read.
        return operation.argument("input") in last or _is_kernel_last(operation.argument("weight"), module)
    if name in _KEEPING:
        return any(value in last for value in node.all_input_nodes[:1])
    return is_pointwise(node.target) and any(value in last for value in node.all_input_nodes)


def _is_kernel_last(kernel: Node, module: nn.Module) -> bool:
    """Return whether the channels of a kernel lie last; in one of a single pixel they lie both ways."""
    if kernel.op != "get_attr":
        return False
    tensor = attribute(module, str(kernel.target))
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def _written_again(graph: Graph, pick: Node) -> Node:
    """Replace a pick by one of the columns of a matrix, and return the step that makes its map."""
    operation = Operation(pick, "", "", "")
    value, positions = operation.argument("self"), operation.argument("index")
    with graph.inserting_before(pick):
        pixels = graph.call_function(aten.permute.default, (value, [0, 2, 3, 1]))
        matrix = graph.call_function(aten.flatten.using_ints, (pixels, 0, 2))
        columns = graph.call_function(aten.index_select.default, (matrix, 1, positions))
        height, width = (graph.call_function(SYM_SIZE, (value, axis)) for axis in (2, 3))
        found = graph.call_function(aten.unflatten.int, (columns, 0, [-1, height, width]))
        picked = graph.call_function(aten.permute.default, (found, [0, 3, 1, 2]))
    pick.replace_all_uses_with(picked)
    graph.erase_node(pick)
    return picked
