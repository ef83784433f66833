"""Nodes: the operator, the layers, the shape and the rank of a node of an exported graph."""

import re
from typing import Any

from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.operation import layer_of
from pluribus.mechanisms.graph.operators import normalises, operator_name
from pluribus.mechanisms.network.layers import NAMED_NORM
from pluribus.mechanisms.network.torch_private import module_stack, size_in_example


def is_norm_call(node: Node) -> bool:
    """Return whether an operator normalises, or belongs to a layer whose class is named like a norm."""
    if normalises(operator_name(node)):
        return True
    stack = module_stack(node)
    # Norms written by hand export as means and products, so that their class alone tells.
    return bool(stack) and NAMED_NORM.search(stack[-1][1]) is not None


def stack_of(node: Node) -> list[str]:
    """Return the names of all modules that run a node, outermost first, without the network itself."""
    names = []
    for name, _ in module_stack(node):
        # The exported root holds the network under this name.
        if name.startswith("network."):
            # torch.export numbers the further calls of one module: `layer@1`.
            names.append(re.sub(r"@\d+$", "", name).removeprefix("network."))
    return names


def layer_label(node: Node) -> str:
    """Return the name of the layer that runs a node, for messages."""
    return layer_of(node) or f"{operator_name(node)} in the network itself"


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape that a value has with the example."""
    return tuple(int(size_in_example(size)) for size in value.shape)


def rank_of(node: Node) -> int:
    """Return the number of axes of a value; 0 of several values."""
    value = node.meta.get("val")
    return value.ndim if isinstance(value, Tensor) else 0
