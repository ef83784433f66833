"""Factored weights: members whose weights are one weight with scaled inputs and outputs run as one batch.

A rank-one product of a weight is the same as a scaling of what the layer reads and returns,

    (W ∘ s rᵀ) x + b = s ∘ (W (r ∘ x)) + b                                                (1)

so that a member needs no weight of its own. For few samples a layer with large weights takes the time of
reading them: M members read W once by Eq. (1), and M products of W otherwise. For many samples the two
scalings cost more than the products do, where activations are large. A layer is therefore written by Eq. (1)
where its weight is larger than what it reads and returns for one sample. A norm that was folded into the
product is folded into s and b instead.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.fold_norms import Folded, Keys, Of, name_of
from pluribus.mechanisms.graph.foldable import FOLDABLE, Fold
from pluribus.mechanisms.graph.operation import Operation
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.graph.rewriting import Rewriting

aten: Any = torch.ops.aten

OUTWEIGHS = 1
"""How many times larger a weight must be than what its layer reads and returns for one sample. ResNet-18
took 3.79 times the plain network for one sample with a weight for each of four members, and 2.42, 2.51 and
2.53 times with limits of 1, 4 and 16; for 32 samples 4.03, and 3.96 and 3.99 with limits of 1 and 4."""

IN_CACHE = 1 << 19
"""Bytes of a weight up to which it stays in the processor's cache, where reading it again costs nothing: an
MLP of 256 x 256 took 1.7 times the plain network with a weight for each member, and 2.0 to 2.6 times with
scalings. With 1024 x 1024, scalings took 3.3 times instead of 6.3."""


@dataclass(frozen=True)
class Factors:
    """Weights of members as one weight and two vectors for each member.

    Attributes:
        weights: By name, the weights that all members share.
        of: Maps a row to the factors of outputs and of inputs of each weight, by its name.
    """

    weights: Mapping[str, Tensor]
    of: Callable[[Any], Mapping[str, tuple[Tensor, Tensor]]]


@dataclass(frozen=True)
class Factored:
    """A layer that is written by Eq. (1).

    Attributes:
        layer: Its step.
        name: Of the shared weight.
        bias: The name of its bias; empty without one.
        fold: The norm that became part of it, if any.
        axes: Behind the channels, of what it reads and returns.
    """

    layer: Node
    name: str
    bias: str
    fold: Fold | None
    axes: int

    @property
    def own(self) -> str:
        """Return the name of the weights of members, of which the layer has none any more."""
        return self.fold.names[0] if self.fold else self.name

    @property
    def names(self) -> dict[str, str]:
        """Map the new tensors of a row to the one that tells whether rows share it; empty where all do."""
        found = {
            f"shared {self.name}": "",
            f"inputs of {self.name}": self.name,
            f"outputs of {self.own}": self.own,
        }
        if self.bias:
            found[f"shifts of {self.bias}"] = self.bias
        return found

    def tensors(
        self, values: Mapping[str, Tensor], weight: Tensor, factors: tuple[Tensor, Tensor]
    ) -> list[Tensor]:
        """Return the new tensors of a row, in the order of `names`.

        Args:
            values: The tensors of the row.
            weight: Of all rows.
            factors: Of outputs and inputs.
        """
        first, second = factors
        if self.fold is not None:
            # A norm scales channels, of a vector as of a weight.
            scaled = first.view(-1, *[1] * (weight.ndim - 1))
            first = self.fold.tensors({**values, self.name: scaled})[0]
        found = [second, first, *([values[self.bias]] if self.bias else [])]
        return [weight, *(one.reshape(-1, *[1] * self.axes) for one in found)]


def factor_weights(folded: Folded, factors: Factors, prefix: str = "") -> Folded:
    """Return a program in which members share their large weights, with a note for each of these layers.

    Args:
        folded: The program, after norms were folded.
        factors: Of its weights.
        prefix: What the names of the network's layers begin with in the program.
    """
    found = list(_find(folded, factors))
    if not found:
        return folded
    notes = dict.fromkeys(folded.notes)
    for one in found:
        name = name_of(one.layer, prefix)
        notes[f"{name} has one weight for all members, and scales inputs and outputs"] = None
    return replace(
        folded,
        program=_rewritten(folded.program, found),
        of=_with_factors(folded, found, factors),
        keys=_with_keys(folded, found),
        notes=tuple(notes),
    )


def _find(folded: Folded, factors: Factors) -> Iterator[Factored]:
    """Yield the layers that are written by Eq. (1)."""
    program = folded.program
    folds = {fold.names[0]: fold for fold in folded.folds}
    for layer in program.steps:
        operator = operator_name(layer)
        if operator not in FOLDABLE:
            continue
        operation = Operation(layer, "", "", "")
        own = program.held.get(operation.argument("weight"), "")
        fold = folds.get(own)
        weight = factors.weights.get(fold.held[0] if fold else own)
        bias = operation.argument("bias")
        # A bias that is computed has no name.
        if weight is None or not (bias is None or bias in program.held):
            continue
        if _outweighs(operation, weight):
            axes = 0 if operator == "linear" else weight.ndim - 2
            yield Factored(layer, fold.held[0] if fold else own, program.held.get(bias, ""), fold, axes)


def _outweighs(operation: Operation, weight: Tensor) -> bool:
    """Return whether a weight is much larger than what its layer reads and returns for one sample."""
    shapes = [node.meta["val"].shape for node in (operation.argument("input"), operation.node)]
    # Without an axis of samples, or with a free length, nobody knows the numbers of a sample.
    if not all(isinstance(size, int) for shape in shapes for size in shape[1:]):
        return False
    return weight.nbytes > IN_CACHE and weight.numel() > OUTWEIGHS * sum(prod(shape[1:]) for shape in shapes)


def _rewritten(program: Program, found: Sequence[Factored]) -> Program:
    """Return a program whose layers scale what they read and return."""
    rewriting = Rewriting(program)
    for one in found:
        operation = Operation(one.layer, "", "", "")
        value, weight, bias = (operation.argument(name) for name in ("input", "weight", "bias"))
        entries = list[Node]()
        for name, like in zip(one.names, (weight, value, one.layer, bias), strict=False):
            # The layer is the product alone: scalings have no multiply-adds, and are not counted as its runs.
            entries.append(rewriting.entry(name, like.meta["val"], parameter=like is weight))
        rewriting.replace(one.layer, _scaled(rewriting, one.layer, entries))
    return rewriting.finish()


def _scaled(rewriting: Rewriting, layer: Node, entries: Sequence[Node]) -> Node:
    """Write a layer by Eq. (1), and return the node of what it returns.

    Args:
        rewriting: Of the program.
        layer: A step of the program.
        entries: The weight, the factors of inputs and of outputs, and the bias if there is one.
    """
    graph, copy = rewriting.graph, rewriting.copies[layer]
    value = Operation(copy, "", "", "").argument("input")
    weight, inputs, outputs, *shifts = entries
    others = {name: one for name, one in copy.kwargs.items() if name not in ("input", "weight", "bias")}

    def add(like: Node, target: Any, *args: Any, **kwargs: Any) -> Node:
        node = graph.call_function(target, args, kwargs)
        # The steps belong to the layer, whose value they compute.
        node.meta = {**copy.meta, "val": like.meta["val"]}
        return node

    with graph.inserting_before(copy):
        scaled = add(value, aten.mul.Tensor, value, inputs)
        found = add(copy, copy.target, scaled, weight, None, *copy.args[3:], **others)
        found = add(copy, aten.mul.Tensor, found, outputs)
        for shift in shifts:
            found = add(copy, aten.add.Tensor, found, shift)
    return found


def _with_factors(folded: Folded, found: Sequence[Factored], factors: Factors) -> Of:
    """Return a function that yields the new tensors of rows too."""

    @torch.no_grad()
    def of(rows: Sequence[Any]) -> Iterator[Mapping[str, Tensor]]:
        for row, values in zip(rows, folded.of(rows), strict=True):
            every, tensors = factors.of(row), dict(values)
            for one in found:
                made = one.tensors(values, factors.weights[one.name], every[one.name])
                tensors |= dict(zip(one.names, made, strict=True))
            yield tensors

    return of


def _with_keys(folded: Folded, found: Sequence[Factored]) -> Keys:
    """Return a function that maps the new tensors to keys too."""

    def keys(row: Any) -> Mapping[str, Hashable]:
        chosen = dict(folded.keys(row))
        for one in found:
            for name, source in one.names.items():
                # Tensors without a key are the same for all rows.
                if source in chosen:
                    chosen[name] = chosen[source]
        return chosen

    return keys
