"""Liveness: which channels of every value a prediction needs.

Read backwards through the steps of a network: a product with weights needs the channels that are not
zero, other operators pass on what is asked of them, along one axis of each value. An operator that
no rule knows needs all, and gives all: that is slower and never wrong.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.export import Operation
from pluribus.mechanisms.widths.flow import COPIES, ELEMENTWISE, MIXES, SPATIAL, shapes

CONVOLUTIONS = frozenset(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))
NORMS = frozenset({"batch_norm", "_native_batch_norm_legit_no_training", "instance_norm", "prelu"})
REDUCTIONS = frozenset({"mean", "sum", "amax", "amin", "var", "std"})
RESHAPES = frozenset({"view", "reshape", "_unsafe_view", "flatten", "unsqueeze", "squeeze"})
DROPOUTS = frozenset({"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"})
ZERO_AT_ZERO = frozenset({"relu", "gelu", "silu", "tanh", "elu", "leaky_relu", "contiguous", "clone", "to"})


@dataclass(frozen=True, eq=False)
class Some:
    """Some positions along one axis of a value; in their place, None says all.

    Attributes:
        axis: From 0 on.
        chosen: Whether each position is one of them, `[size]`.
    """

    axis: int
    chosen: Tensor

    @property
    def count(self) -> int:
        """How many there are."""
        return int(self.chosen.sum())


Kept = Some | None


class Whole(Exception):
    """Raised where a step must be computed whole."""


def both(one: Kept, other: Kept) -> Kept:
    """The positions of either."""
    if one is None or other is None or one.axis != other.axis:
        return None
    return Some(one.axis, one.chosen | other.chosen)


def rounded(kept: Kept, align: int, least: int = 32) -> Kept:
    """The positions with others added, up to a multiple of `align`, from `least` of them on."""
    if kept is None or kept.count < least or kept.count % align == 0:
        return kept
    chosen = kept.chosen.clone()
    others = (~chosen).nonzero().flatten()
    chosen[others[: align - kept.count % align]] = True
    return Some(kept.axis, chosen)


def some(kept: Kept) -> Kept:
    """The positions, or the first one where there are none: few operators run on nothing."""
    if kept is None or kept.count:
        return kept
    return Some(kept.axis, torch.arange(len(kept.chosen), device=kept.chosen.device) == 0)


def shape_of(node: Node) -> tuple[int, ...]:
    """The shape of a value in the example; of several values, that of the first."""
    found = shapes(node.meta.get("val"))
    return tuple(found[0]) if isinstance(found, list) else tuple(found or ())


@dataclass(frozen=True, eq=False)
class Step:
    """One operator with its operands, each with the name and the position of its argument."""

    operation: Operation
    operands: tuple[tuple[str, int, Node], ...]

    @property
    def node(self) -> Node:
        """In the graph."""
        return self.operation.node

    @property
    def operator(self) -> str:
        """Its name, without the namespace and the overload."""
        return self.operation.operator

    def argument(self, name: str, default: Any = None) -> Any:
        """The operator's argument of that name."""
        return self.operation.argument(name, default)

    @property
    def is_product(self) -> bool:
        """Whether it sums over channels with weights: a layer, or a convolution of one group."""
        if self.operator == "linear":
            return len(shape_of(self.argument("weight"))) == 2
        return self.operator in CONVOLUTIONS and self.argument("groups") == 1 and self._is_batched

    @property
    def _is_batched(self) -> bool:
        return len(shape_of(self.node)) == len(shape_of(self.argument("weight")))

    @property
    def is_depthwise(self) -> bool:
        """Whether it is a convolution of each channel by itself."""
        if self.operator not in CONVOLUTIONS or "transpose" in self.operator:
            return False
        weight = shape_of(self.argument("weight"))
        return self.argument("groups") == weight[0] and weight[1] == 1 and self._is_batched

    @property
    def is_idle_dropout(self) -> bool:
        """Whether it is dropout that is switched off."""
        return self.operator in DROPOUTS and not self.argument("train")

    @property
    def channel_axis(self) -> int:
        """Of a product, the axis of its output's channels, and of its input's."""
        return len(shape_of(self.node)) - 1 if self.operator == "linear" else 1


def make_step(operation: Operation) -> Step:
    """The step of an operator."""
    schema = getattr(operation.node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema else []
    operands: list[tuple[str, int, Node]] = []
    named = [(names[i] if i < len(names) else str(i), value) for i, value in enumerate(operation.node.args)]
    for name, value in [*named, *operation.node.kwargs.items()]:
        several = value if isinstance(value, list | tuple) else [value]
        operands += [(name, i, one) for i, one in enumerate(several) if isinstance(one, Node)]
    return Step(operation, tuple(operands))


def needed(step: Step, name: str, position: int, operand: Node, kept: Some) -> Kept:
    """What of an operand makes the kept positions of a step's result.

    Raises:
        Whole: the step has no parts along that axis.
    """
    operator = step.operator
    size = shape_of(operand)
    if operator == "<built-in function getitem>":
        if step.node.args[1] != 0 or "batch_norm" not in str(operand.target):
            raise Whole
        return kept
    if _is_pointwise(step):
        axis = kept.axis - (len(shape_of(step.node)) - len(size))
        return None if axis < 0 or size[axis] == 1 else Some(axis, kept.chosen)
    if operator in NORMS or step.is_depthwise:
        return _channelwise(name, size, kept)
    if operator.startswith(SPATIAL):
        dims = re.search(r"(\d)d", operator)
        if kept.axis != 1 or dims is None or len(size) != int(dims[1]) + 2:
            raise Whole
        return kept
    rule = _RULES.get(operator)
    if rule is None:
        raise Whole
    return rule(step, position, size, kept)


def _is_pointwise(step: Step) -> bool:
    tags = getattr(step.node.target, "tags", ())
    if step.operator in MIXES or (torch.Tag.nondeterministic_seeded in tags and not step.is_idle_dropout):
        return False
    return torch.Tag.pointwise in tags or step.operator in COPIES | ELEMENTWISE


def _channelwise(name: str, size: Sequence[int], kept: Some) -> Kept:
    if kept.axis != 1:
        raise Whole
    if name in ("input", "self"):
        return kept
    return None if size[0] == 1 else Some(0, kept.chosen)


def _reduction(step: Step, position: int, size: Sequence[int], kept: Some) -> Kept:
    axes = step.argument("dim")
    if axes in (None, []) or isinstance(step.node.meta["val"], tuple | list):
        raise Whole
    reduced = {axis % len(size) for axis in (axes if isinstance(axes, list | tuple) else [axes])}
    if len(shape_of(step.node)) == len(size):
        return None if kept.axis in reduced else kept
    return Some([axis for axis in range(len(size)) if axis not in reduced][kept.axis], kept.chosen)


def _permute(step: Step, position: int, size: Sequence[int], kept: Some) -> Kept:
    order = list(range(len(size)))
    if step.operator == "permute":
        order = [axis % len(size) for axis in step.argument("dims")]
    else:
        one, other = (step.argument(name) for name in ("dim0", "dim1"))
        order[one], order[other] = order[other], order[one]
    return Some(order[kept.axis], kept.chosen)


def _reshape(step: Step, position: int, size: Sequence[int], kept: Some) -> Kept:
    axis, repeats = merged_axis(size, shape_of(step.node), kept.axis)
    return Some(axis, kept.chosen.view(-1, repeats).any(1))


def merged_axis(before: Sequence[int], after: Sequence[int], axis: int) -> tuple[int, int]:
    """The axis that a reshape makes `axis` of, and the number of entries that come of each position.

    Raises:
        Whole: it is no axis of before, alone or with those that follow it.
    """
    outer, size = math.prod(after[:axis]), after[axis]
    for old, length in enumerate(before):
        if length > 1 and math.prod(before[:old]) == outer:
            for end in range(old + 1, len(before) + 1):
                if math.prod(before[old:end]) == size:
                    return old, size // length
    raise Whole


def _cat(step: Step, position: int, size: Sequence[int], kept: Some) -> Kept:
    axis = step.argument("dim", 0) % len(size)
    if axis != kept.axis:
        return kept
    sizes = [shape_of(node)[axis] for node in step.argument("tensors")]
    start = sum(sizes[:position])
    return Some(axis, kept.chosen[start : start + sizes[position]])


def _select(step: Step, position: int, size: Sequence[int], kept: Some) -> Kept:
    dim = step.argument("dim") % len(size)
    return Some(kept.axis + (kept.axis >= dim), kept.chosen)


def _slice(step: Step, position: int, size: Sequence[int], kept: Some) -> Kept:
    if step.argument("dim", 0) % len(size) == kept.axis:
        raise Whole
    return kept


def _pad(step: Step, position: int, size: Sequence[int], kept: Some) -> Kept:
    pads = step.argument("pad")
    if kept.axis >= len(size) - len(pads) // 2 or (step.argument("mode") or "constant") != "constant":
        raise Whole
    return kept


_RULES = {
    **dict.fromkeys(REDUCTIONS, _reduction),
    **dict.fromkeys(("permute", "transpose"), _permute),
    **dict.fromkeys(RESHAPES, _reshape),
    **dict.fromkeys(("cat", "concat", "concatenate"), _cat),
    "select": _select,
    "slice": _slice,
    **dict.fromkeys(("constant_pad_nd", "pad"), _pad),
}


def zeros(node: Node, steps: Mapping[Node, Step], masks: Mapping[Node, Some]) -> Kept:
    """The positions of a value that are zero because of a mask; None where none is known."""
    if node in masks:
        return Some(masks[node].axis, ~masks[node].chosen)
    step = steps.get(node)
    if step is None or len(step.operands) == 0:
        return None
    passes = step.operator in ZERO_AT_ZERO | RESHAPES or step.is_idle_dropout
    before = zeros(step.operands[0][2], steps, masks) if passes else None
    if before is None or step.operator not in RESHAPES:
        return before
    shape = shape_of(node)
    for axis in range(len(shape)):
        try:
            old, repeats = merged_axis(shape_of(step.operands[0][2]), shape, axis)
        except Whole:
            continue
        if old == before.axis:
            return Some(axis, before.chosen.repeat_interleave(repeats))
    return None


def find_needs(
    steps: Iterable[Step],
    needs: dict[Node, Kept],
    masks: Mapping[Node, Some],
    inputs: Mapping[Node, Kept],
    align: int,
) -> None:
    """Adds to `needs` what the steps before need; call it with the steps backwards.

    Args:
        steps: From last to first.
        needs: What is needed of some values; those that are not in it are not needed.
        masks: Of every product with a mask, where the mask is one.
        inputs: Of every product with weights, the channels of its input that are not zero.
        align: What numbers of positions are rounded to.
    """
    measured: set[Node] = set()
    for step in steps:
        node = step.node
        if node not in needs:
            if node not in measured:
                continue
            needs[node] = None
        if node not in masks:
            needs[node] = some(needs[node])
            if step.operator not in RESHAPES:
                needs[node] = rounded(needs[node], align)
        if step.operator == "sym_size":
            measured.add(step.operands[0][2])
            continue
        for operand, kept in _asked(step, needs, masks, inputs):
            needs[operand] = both(needs[operand], kept) if operand in needs else kept


def _asked(
    step: Step, needs: dict[Node, Kept], masks: Mapping[Node, Some], inputs: Mapping[Node, Kept]
) -> Iterator[tuple[Node, Kept]]:
    node, kept = step.node, needs[step.node]
    if node in inputs:
        if kept is not None and kept.axis != step.channel_axis:
            needs[node] = None
        yield step.operands[0][2], inputs[node]
        return
    if node in masks:
        mask = masks[node]
        if kept is not None and kept.axis != mask.axis:
            needs[node] = kept = None
        chosen = mask.chosen if kept is None else mask.chosen & kept.chosen
        yield step.operands[0][2], Some(mask.axis, chosen)
        return
    try:
        asked = [(o, None if kept is None else needed(step, n, i, o, kept)) for n, i, o in step.operands]
    except Whole:
        needs[node] = None
        asked = [(operand, None) for _, _, operand in step.operands]
    yield from asked
