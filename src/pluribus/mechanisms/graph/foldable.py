"""Foldable norms: which batch norms of a program can become part of the layers before them."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.folding import Norm, fold_norm
from pluribus.mechanisms.graph.operation import Operation
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.program import Program

# Their output channels are axis 0 of the weight, as `fold_norm` needs; transposed convolutions differ.
FOLDABLE = ("linear", "conv1d", "conv2d", "conv3d")
NORM_TENSORS = ("running_mean", "running_var", "weight", "bias")


class Merged(Protocol):
    """A layer and a norm whose tensors become those of one layer.

    Attributes:
        held: The names of the layer's weight and bias, then those of the norm's tensors; empty for those that
            are not there.
        names: Of the new weight and bias.
    """

    @property
    def held(self) -> tuple[str, ...]: ...

    @property
    def names(self) -> tuple[str, str]: ...

    def tensors(self, values: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the new weight and bias of a row with these tensors."""
        ...


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


def find_folds(program: Program) -> list[Fold]:
    """Return the norms that alone read what a layer computes, where folding changes nothing else."""
    return _only_readers(program, list(_pairs(program)))


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


def why_apart(program: Program, fold: Merged, chosen: Sequence[Mapping[str, Hashable]]) -> str:
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
