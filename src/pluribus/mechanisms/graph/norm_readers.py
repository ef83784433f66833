"""Norm readers: the linear layers behind a layer norm, and what is left of the norm.

`fold_layer_norms.py` makes scale and shift of the norm a part of these layers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.operation import Operation
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.program import Program


@dataclass(frozen=True)
class Reader:
    """A linear layer that reads a norm.

    Attributes:
        layer: Its step.
        norm: The step of the norm.
        held: The names of weight and bias of the layer, and of scale and shift of the norm; empty for those
            that are not there.
    """

    layer: Node
    norm: Node
    held: tuple[str, ...]

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of the folded weight and bias, equal for equal tensors."""
        joined = "+".join(self.held)
        return f"weight behind norm {joined}", f"bias behind norm {joined}"

    def tensors(self, values: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the folded weight and bias of a row with these tensors, Eq. (1)."""
        weight, bias, scale, shift = [values[name] if name else None for name in self.held]
        assert weight is not None
        assert scale is not None
        shifted = torch.zeros_like(weight[:, 0]) if shift is None else weight @ shift
        return weight * scale, shifted if bias is None else shifted + bias


@dataclass(frozen=True)
class PlainNorm:
    """A norm without a scale of its own: it has ones, and a shift of zeros, the same for all rows.

    Attributes:
        scale: The name of its scale before.
        size: Of the normalised axis.
        dtype: Of the scale.
    """

    scale: str
    size: int
    dtype: torch.dtype
    held: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of scale and shift, equal for norms of one size and precision."""
        return f"{self.size} ones {self.dtype}", f"{self.size} zeros {self.dtype}"

    def tensors(self, values: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return scale and shift."""
        like = values[self.scale]
        return torch.ones_like(like), torch.zeros_like(like)


def reader_of(program: Program, norm: Node, layer: Node) -> Reader | None:
    """Return a linear layer that reads a norm as its input; None for another step.

    Args:
        program: The steps.
        norm: One of them.
        layer: A step that reads it.
    """
    product, operation = Operation(layer, "", "", ""), Operation(norm, "", "", "")
    if operator_name(layer) != "linear" or product.argument("input") is not norm:
        return None
    # `F.linear` takes a vector too, which has no axis of outputs.
    if product.argument("weight").meta["val"].ndim != 2:
        return None
    names = list[str]()
    for part in (product, operation):
        for tensor in (part.argument("weight"), part.argument("bias")):
            # A tensor that is computed has no name, and the norm itself may be the weight.
            if tensor is not None and tensor not in program.held:
                return None
            names.append("" if tensor is None else program.held[tensor])
    return Reader(layer, norm, tuple(names))


def plain_norm_of(program: Program, norm: Node) -> PlainNorm:
    """Return what is left of a norm."""
    scale = Operation(norm, "", "", "").argument("weight")
    like = scale.meta["val"]
    return PlainNorm(program.held[scale], like.shape[0], like.dtype)
