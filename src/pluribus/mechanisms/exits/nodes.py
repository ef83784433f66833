"""Nodes: the operator, the layers, the shape and the rank of a node of an exported graph."""

import re
from typing import Any

from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.export import layer_of
from pluribus.mechanisms.widths.flow import hint

# The operators of torch's norms, whichever of their variants the export chose.
NORMS = re.compile(r"(batch|layer|group|instance|rms)_norm")
# Norms written by hand export as means and products, so that their class alone tells: `LlamaRMSNorm`,
# `LayerNorm2d`, timm's `BatchNormAct2d`.
NAMED_NORM = re.compile(r"Norm(?:[123]d|Act|Act2d)?$")


def operator(node: Node) -> str:
    """Return the operator's name without its library and overload."""
    return str(node.target).removeprefix("aten.").split(".")[0]


def is_norm_call(node: Node) -> bool:
    """Return whether an operator normalises, or belongs to a layer whose class is named like a norm."""
    if NORMS.search(operator(node)):
        return True
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return bool(stack) and bool(NAMED_NORM.search(str(stack[-1][1])))


def stack_of(node: Node) -> list[str]:
    """Return the names of all modules that run a node, outermost first, without the network itself."""
    names = []
    for entry in node.meta.get("nn_module_stack", {}).values():
        name = str(entry[0])
        # The exported root holds the network under this name.
        if name.startswith("network."):
            # torch.export numbers the further calls of one module: `layer@1`.
            names.append(re.sub(r"@\d+$", "", name).removeprefix("network."))
    return names


def layer_label(node: Node) -> str:
    """Return the name of the layer that runs a node, for messages."""
    return layer_of(node) or f"{operator(node)} in the network itself"


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape that a value has with the example."""
    return tuple(int(hint(size)) for size in value.shape)


def rank_of(node: Node) -> int:
    """Return the number of axes of a value; 0 of several values."""
    value = node.meta.get("val")
    return value.ndim if isinstance(value, Tensor) else 0
