"""Fold layer norms: scale and shift of members become part of the linear layers that read the norm.

    W (scale ∘ n + shift) + b = (W scale) n + (W shift + b)                                (1)

What is left of the norm is the same for all members, so that it runs once for all that lie on one stack,
where it ran once for each member before, and the results were joined by a copy.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.export import Operation, layer_of
from pluribus.mechanisms.graph.fold_norms import Folded, Keys, Of
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.graph.rewriting import Rewriting


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
    held: tuple[str, str, str, str]

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


def fold_layer_norms(folded: Folded, rows: Sequence[Any], prefix: str = "") -> Folded:
    """Return a program in which norms of members have neither scale nor shift, where that is possible.

    Args:
        folded: The program, after other passes.
        rows: All rows.
        prefix: What the names of the network's layers begin with in the program.
    """
    chosen, readers, notes = [folded.keys(row) for row in rows], list[Reader](), dict.fromkeys(folded.notes)
    for norm in folded.program.steps:
        found = _readers(folded.program, norm)
        if found and _pays(found, chosen):
            readers += found
            name = layer_of(norm).removeprefix(prefix.removesuffix(".")).removeprefix(".")
            notes[f"scale and shift of {name or 'a norm'} are part of the layers that read it"] = None
    if not readers:
        return folded
    return replace(
        folded,
        program=_rewritten(folded.program, readers),
        of=_with_folds(folded, readers),
        keys=_with_keys(folded, readers),
        notes=tuple(notes),
    )


def _readers(program: Program, norm: Node) -> list[Reader]:
    """Return the linear layers that read a norm of the last axis; none where anything else reads it."""
    if operator_name(norm) != "layer_norm" or norm in program.reads(program.results):
        return []
    operation = Operation(norm, "", "", "")
    scale, shift = operation.argument("weight"), operation.argument("bias")
    if scale not in program.held or len(operation.argument("normalized_shape")) != 1:
        return []
    found = list[Reader]()
    for layer in set(program.steps).intersection(norm.users):
        product = Operation(layer, "", "", "")
        if operator_name(layer) != "linear" or product.argument("input") is not norm:
            return []
        tensors = (product.argument("weight"), product.argument("bias"), scale, shift)
        # A tensor that is computed has no name, and the norm itself may be the weight.
        if any(one is not None and one not in program.held for one in tensors):
            return []
        if len({one.meta["val"].dtype for one in tensors if one is not None}) > 1:
            return []
        weight, bias, *others = ("" if one is None else program.held[one] for one in tensors)
        found.append(Reader(layer, norm, (weight, bias, others[0], others[1])))
    return found


def _pays(readers: Sequence[Reader], chosen: Sequence[Mapping[str, Hashable]]) -> bool:
    """Return whether rows have norms of their own, and folding gives them no more weights than they had."""
    for reader in readers:
        layers = {tuple(keys.get(name) for name in reader.held[:2]) for keys in chosen}
        norms = {tuple(keys.get(name) for name in reader.held[2:]) for keys in chosen}
        both = {tuple(keys.get(name) for name in reader.held) for keys in chosen}
        if len(norms) == 1 or len(both) > len(layers):
            return False
    return True


def _rewritten(program: Program, readers: Sequence[Reader]) -> Program:
    """Return a program in which layers read folded weights, and norms have none."""
    rewriting = Rewriting(program)
    for reader in readers:
        layer, norm = rewriting.copies[reader.layer], rewriting.copies[reader.norm]
        like = Operation(reader.layer, "", "", "").argument("weight").meta["val"]
        weight, bias = [
            rewriting.entry(name, value) for name, value in zip(reader.names, (like, like[:, 0]), strict=True)
        ]
        layer.args, layer.kwargs = (norm, weight, bias), {}
        operation = Operation(norm, "", "", "")
        norm.args = (operation.argument("input"), operation.argument("normalized_shape"))
        norm.kwargs = {"eps": operation.argument("eps")}
    return rewriting.finish()


def _with_folds(folded: Folded, readers: Sequence[Reader]) -> Of:
    """Return a function that yields the folded tensors of rows too, those with equal keys once."""

    @torch.no_grad()
    def of(rows: Sequence[Any]) -> Iterator[Mapping[str, Tensor]]:
        known = dict[tuple[Hashable, ...], tuple[Tensor, Tensor]]()
        for row, values in zip(rows, folded.of(rows), strict=True):
            chosen, found = folded.keys(row), dict(values)
            for reader in readers:
                key = (reader.names, *(chosen.get(name) for name in reader.held))
                if key not in known:
                    known[key] = reader.tensors(values)
                found |= dict(zip(reader.names, known[key], strict=True))
            yield found

    return of


def _with_keys(folded: Folded, readers: Sequence[Reader]) -> Keys:
    """Return a function that maps folded tensors to keys too; rows have norms of their own."""

    def keys(row: Any) -> Mapping[str, Hashable]:
        chosen = dict(folded.keys(row))
        for reader in readers:
            chosen |= dict.fromkeys(reader.names, tuple(chosen.get(name) for name in reader.held))
        return chosen

    return keys
