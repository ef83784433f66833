"""Fold norms: batch norms of a program become part of the layers before them, for every row.

`folding.py` has the arithmetic. Here the data flow decides which norms can be folded: those that alone read
what a layer computes, where folding gives rows no more weights than they had.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from pluribus.mechanisms.graph.export import Operation, layer_of
from pluribus.mechanisms.graph.folding import Norm, fold_norm
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.program import Program

# Their output channels are axis 0 of the weight, as `fold_norm` needs; transposed convolutions differ.
FOLDABLE = ("linear", "conv1d", "conv2d", "conv3d")
NORM_TENSORS = ("running_mean", "running_var", "weight", "bias")

Keys = Callable[[Any], Mapping[str, Hashable]]
"""Map each tensor of a row to its key."""
Of = Callable[[Sequence[Any]], Iterator[Mapping[str, Tensor]]]
"""Yield the complete tensors of rows."""


@dataclass(frozen=True)
class Fold:
    """A norm that becomes part of a layer.

    Attributes:
        layer: The step of the layer.
        norm: The step of the norm.
        held: The names of the layer's weight and bias, and of the norm's mean, variance, scale and shift;
            empty for those that are not there.
        eps: Of the norm.
    """

    layer: Node
    norm: Node
    held: tuple[str, ...]
    eps: float

    @property
    def names(self) -> tuple[str, str]:
        """Return the names of the folded weight and bias, equal for equal tensors."""
        joined = "+".join(self.held)
        return f"folded weight {joined}", f"folded bias {joined}"

    def tensors(self, values: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the folded weight and bias of a row with these tensors."""
        weight, bias, mean, variance, scale, shift = [values[name] if name else None for name in self.held]
        assert weight is not None
        assert mean is not None
        assert variance is not None
        return fold_norm(weight, bias, Norm(mean, variance, self.eps, scale, shift))


@dataclass(frozen=True)
class Folded:
    """A program with folded norms.

    Attributes:
        program: The steps without these norms.
        of: Yields the tensors of rows.
        keys: Maps each tensor of a row to its key.
        notes: One for each norm behind a layer: what became of it.
    """

    program: Program
    of: Of
    keys: Keys
    notes: tuple[str, ...]


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
    for found in _pairs(program):
        why = _why_apart(program, found, chosen)
        layer, norm = _name(found.layer, prefix), _name(found.norm, prefix)
        if why:
            notes[f"{norm} is not part of {layer}: {why}"] = None
        else:
            folds.append(found)
            notes[f"{norm} is part of {layer}"] = None
    folds = _only_readers(program, folds)
    if not folds:
        kept = [note for note in notes if " is part of " not in note]
        return Folded(program, of, keys, tuple(kept))
    parts = {_name(fold.norm, prefix) for fold in folds}
    kept = [note for note in notes if " is part of " not in note or note.split(" is part of ")[0] in parts]
    return Folded(
        _rewritten(program, folds), _with_folds(of, keys, folds), _keys_of(keys, folds), tuple(kept)
    )


def _name(node: Node, prefix: str) -> str:
    """Return the name of a step's layer as the user knows it."""
    return layer_of(node).removeprefix(prefix.removesuffix(".")).removeprefix(".") or "the network itself"


def _pairs(program: Program) -> Iterator[Fold]:
    """Yield the norms with stored statistics that alone read what a layer computes."""
    steps, results = set(program.steps), set(program.reads(program.results))
    for norm in program.steps:
        if operator_name(norm) != "batch_norm":
            continue
        operation = Operation(norm, "batch_norm", "", "")
        layer = operation.argument("input")
        # In eval mode a norm that uses the batch is not affine.
        if operation.argument("training") or layer not in steps or operator_name(layer) not in FOLDABLE:
            continue
        # Another reader of the values, as a residual, needs them without the norm.
        if layer in results or steps.intersection(layer.users) != {norm}:
            continue
        held = _held(program, layer, norm)
        if held is not None:
            yield Fold(layer, norm, held, float(operation.argument("eps")))


def _held(program: Program, layer: Node, norm: Node) -> tuple[str, ...] | None:
    """Return the names of all tensors of a layer and a norm; None where one is computed, or is missing."""
    product, operation = Operation(layer, "", "", ""), Operation(norm, "", "", "")
    arguments = [product.argument("weight"), product.argument("bias")]
    arguments += [operation.argument(name) for name in NORM_TENSORS]
    names = list[str]()
    for argument in arguments:
        if argument is not None and argument not in program.held:
            return None
        names.append("" if argument is None else program.held[argument])
    # Without stored statistics a norm depends on the batch.
    if not all(names[place] for place in (0, 2, 3)):
        return None
    # Only then are channels axis 1, which the norm scales: a linear layer on a sequence has them last.
    weight = product.argument("weight")
    if layer.meta["val"].ndim != weight.meta["val"].ndim:
        return None
    return tuple(names)


def _why_apart(program: Program, fold: Fold, chosen: Sequence[Mapping[str, Hashable]]) -> str:
    """Return why a norm stays apart from a layer; empty where it can be folded.

    Args:
        program: The steps.
        fold: The layer and the norm.
        chosen: The keys of each row.
    """
    nodes = {name: node for node, name in program.held.items()}
    precisions = {nodes[name].meta["val"].dtype for name in fold.held if name}
    # Folding would round the norm to the layer's precision.
    if len(precisions) > 1:
        return "they have different precisions"
    layers = {tuple(keys.get(name) for name in fold.held[:2]) for keys in chosen}
    both = {tuple(keys.get(name) for name in fold.held) for keys in chosen}
    if len(both) > len(layers):
        # A layer that members share runs once, and is stored once; with the norms of each it would not be.
        return "members share the layer and not the norm"
    return ""


def _only_readers(program: Program, folds: Sequence[Fold]) -> list[Fold]:
    """Return the folds of layers whose weights nothing else reads, as a tied output layer would."""
    layers, steps = {fold.layer for fold in folds}, set(program.steps)
    kept = list[Fold]()
    for fold in folds:
        weight = Operation(fold.layer, "", "", "").argument("weight")
        if steps.intersection(weight.users) <= layers:
            kept.append(fold)
    return kept


def _rewritten(program: Program, folds: Sequence[Fold]) -> Program:
    """Return a program in which layers read folded weights, and norms are gone."""
    graph, copies = Graph(), dict[Node, Node]()
    # The output node is not copied; the program knows its results itself.
    graph.graph_copy(program.graph_module.graph, copies)
    first = next(node for node in graph.nodes if node.op != "placeholder")
    held = {copies[node]: name for node, name in program.held.items()}
    entries = dict[str, Node]()
    for fold in folds:
        layer, norm = copies[fold.layer], copies[fold.norm]
        for name, source in zip(fold.names, _like(fold), strict=True):
            if name not in entries:
                with graph.inserting_before(first):
                    entries[name] = graph.placeholder(f"folded_{len(entries)}")
                entries[name].meta["val"] = source
                held[entries[name]] = name
        weight, bias = fold.names
        _set_weights(layer, entries[weight], entries[bias])
        norm.replace_all_uses_with(layer)
        copies[fold.norm] = layer
    read = {node: name for node, name in held.items() if node.users}
    parameters = {copies[node] for node in program.parameters}
    parameters |= set(entries.values())
    results = tuple(copies[one] if isinstance(one, Node) else one for one in program.results)
    return replace(
        program,
        graph_module=GraphModule(program.graph_module, graph),
        held=read,
        constants={copies[node]: value for node, value in program.constants.items()},
        parameters=frozenset(parameters & read.keys()),
        entries=tuple(copies[node] for node in program.entries),
        results=results,
    )


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


def _with_folds(of: Of, keys: Keys, folds: Sequence[Fold]) -> Of:
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


def _keys_of(keys: Keys, folds: Sequence[Fold]) -> Keys:
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
