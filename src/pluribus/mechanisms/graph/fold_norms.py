"""Fold norms: batch norms of a program become part of the layers before them, for every row.

`folding.py` has the arithmetic. Here the data flow decides which norms can be folded: those that alone read
what a layer computes, where folding gives rows no more weights than they had.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.foldable import Fold, Merged, find_folds, why_apart
from pluribus.mechanisms.graph.operation import Operation, layer_of
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.graph.rewriting import Rewriting

Keys = Callable[[Any], Mapping[str, Hashable]]
"""Map each tensor of a row to its key."""
Of = Callable[[Sequence[Any]], Iterator[Mapping[str, Tensor]]]
"""Yield the complete tensors of rows."""


@dataclass(frozen=True)
class Folded:
    """A program with folded norms.

    Attributes:
        program: The steps without these norms.
        of: Yields the tensors of rows.
        keys: Maps each tensor of a row to its key.
        notes: One for each norm behind a layer: what became of it.
        folds: The norms that are part of layers.
    """

    program: Program
    of: Of
    keys: Keys
    notes: tuple[str, ...]
    folds: tuple[Fold, ...] = ()


def fold_norms(program: Program, of: Of, keys: Keys, rows: Sequence[Any], prefix: str = "") -> Folded:
    """Return a program whose norms are part of the layers before them, where that is possible and pays.

    Args:
        program: All steps; not changed.
        of: Yields the tensors of rows.
        keys: Maps each tensor of a row to its key.
        rows: All rows.
        prefix: What the names of the network's layers begin with in the program.
    """
    chosen = [keys(row) for row in rows]
    folds, notes = list[Fold](), dict[str, None]()
    for found in find_folds(program):
        why = why_apart(program, found, chosen)
        layer, norm = name_of(found.layer, prefix), name_of(found.norm, prefix)
        if why:
            notes[f"{norm} is not part of {layer}: {why}"] = None
        else:
            folds.append(found)
            notes[f"{norm} is part of {layer}"] = None
    if not folds:
        return Folded(program, of, keys, tuple(notes))
    folded = _rewritten(program, folds)
    of, keys = of_with(of, keys, folds), keys_with(keys, folds)
    return Folded(folded, of, keys, tuple(notes), tuple(folds))


def name_of(node: Node, prefix: str) -> str:
    """Return the name of a step's layer as the user knows it."""
    return layer_of(node).removeprefix(prefix.removesuffix(".")).removeprefix(".") or "the network itself"


def _rewritten(program: Program, folds: Sequence[Fold]) -> Program:
    """Return a program in which layers read folded weights, and norms are gone."""
    rewriting = Rewriting(program)
    for fold in folds:
        layer = rewriting.copies[fold.layer]
        entries = [rewriting.entry(name, like) for name, like in zip(fold.names, _like(fold), strict=True)]
        _set_weights(layer, *entries)
        rewriting.replace(fold.norm, layer)
    return rewriting.finish()


def _like(fold: Fold) -> tuple[Any, Any]:
    """Return values of the shapes of the folded weight and bias."""
    weight = Operation(fold.layer, "", "", "").argument("weight").meta["val"]
    mean = Operation(fold.norm, "", "", "").argument("running_mean").meta["val"]
    return weight, mean


def _set_weights(layer: Node, weight: Node, bias: Node) -> None:
    """Make a layer read another weight and bias, which are its second and third argument."""
    others = {name: value for name, value in layer.kwargs.items() if name not in ("weight", "bias")}
    layer.args = (layer.args[0], weight, bias, *layer.args[3:])
    layer.kwargs = others


def of_with(of: Of, keys: Keys, folds: Sequence[Merged]) -> Of:
    """Return a function that yields the folded tensors of rows too, those with equal keys once."""

    @torch.no_grad()
    def folded(rows: Sequence[Any]) -> Iterator[Mapping[str, Tensor]]:
        known = dict[tuple[Hashable, ...], tuple[Tensor, Tensor]]()
        for row, values in zip(rows, of(rows), strict=True):
            chosen, found = keys(row), dict(values)
            for fold in folds:
                key = (fold.names, *(chosen.get(name) for name in fold.held))
                if key not in known:
                    known[key] = fold.tensors(values)
                found |= dict(zip(fold.names, known[key], strict=True))
            yield found

    return folded


def keys_with(keys: Keys, folds: Sequence[Merged]) -> Keys:
    """Return a function that maps folded tensors to keys too."""

    def folded(row: Any) -> Mapping[str, Hashable]:
        chosen = dict(keys(row))
        for fold in folds:
            key = tuple(chosen.get(name) for name in fold.held)
            # Tensors without a key are the same for all rows.
            if any(one is not None for one in key):
                chosen |= dict.fromkeys(fold.names, key)
        return chosen

    return folded
