"""Member constants: the tensors of one member that no input reaches, and what follows from them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.folding import Norm, fold_norm
from pluribus.mechanisms.graph.operators import BATCH_NORMS
from pluribus.mechanisms.masks.aligned_masks import Weights, align_masks
from pluribus.mechanisms.masks.demand import find_zeros, propagate_demand
from pluribus.mechanisms.masks.masked_program import MaskedProgram
from pluribus.mechanisms.masks.positions import Part, Positions
from pluribus.mechanisms.masks.steps import Step, shape_of


class MemberConstants:
    """The constants of one member, its masks, and what its products read.

    Args:
        masked: The network's steps.
        values: The member's tensors by name.
        align: Widths from 32 on are rounded up to a multiple of it.

    Attributes:
        constants: Values of all nodes that no input reaches.
        masks: For every product with a mask, where the mask is not zero, and channels that make its width
            a multiple of `align`, to which all readers give zero weight.
        weights: For every product with weights, its weight and its bias, a folded norm included.
        zeros: By product, the channels of its input to which it gives no weight.
        folded: Norms that became part of the product before them, and pass on what they get.
        inputs: For every product with weights, the channels of its input that it reads.
    """

    @torch.no_grad()
    def __init__(self, masked: MaskedProgram, values: Mapping[str, Tensor], align: int = 1) -> None:
        self.masked, self.align = masked, align
        program = masked.program
        self.constants: dict[Node, Any] = {}
        for node, name in program.held.items():
            self.constants[node] = values[name].detach()
        self.constants |= program.constants
        for node in masked.constant:
            self.constants[node] = program.step(node, self.constants)
        self.masks = {node: self._mask(step) for node, step in masked.maskings.items()}
        self.weights: Weights = {}
        self.folded: set[Node] = set()
        self._find_weights()
        for step in masked.steps.values():
            if step.operator in BATCH_NORMS and self._can_fold(step):
                self._fold(step)
        self.zeros: dict[Node, Positions] = {}
        if align > 1:
            self.masks, self.zeros = align_masks(masked.steps, self.masks, self.weights, align)
        self.inputs = {node: self._read(masked.steps[node]) for node in self.weights}

    @property
    def device(self) -> torch.device:
        """Return the device of the member's tensors."""
        found: torch.device = next(iter(self.constants.values())).device
        return found

    def propagate(self, steps: Sequence[Step], demand: Mapping[Node, Part]) -> dict[Node, Part]:
        """Return a demand with what some steps need of the values before them."""
        complete = dict(demand)
        propagate_demand(reversed(steps), complete, self.masks, self.inputs, self.align)
        return complete

    def cut_weights(self, step: Step, part: Part) -> tuple[Tensor, Tensor | None]:
        """Return the weight and the bias of a product, cut to the columns it reads and the rows of a part."""
        weight, bias = self.weights[step.node]
        read = self.inputs[step.node]
        # torch stores the weights of transposed convolutions the other way round.
        rows, columns = (1, 0) if "transpose" in step.operator else (0, 1)
        # Rows come first: whole rows are copied fast, and fewer numbers are left to pick columns from.
        if part is not None:
            index = part.index(weight.device)
            weight = weight.index_select(rows, index)
            bias = bias if bias is None else bias.index_select(0, index)
        if read is not None:
            weight = weight.index_select(columns, read.index(weight.device))
        zero = self.zeros.get(step.node)
        if zero is None:
            return weight, bias
        chosen = zero.chosen if read is None else zero.chosen[read.chosen]
        # All columns that a mask removes are gone but those that rounding added.
        if bool(chosen.any()):
            weight = weight.index_fill(columns, chosen.nonzero().flatten().to(weight.device), 0.0)
        return weight, bias

    def _mask(self, step: Step) -> Positions:
        mask = self.constants[step.operands[1].node]
        # A mask is `[channels, 1, ...]`: it is broadcast from its channels on.
        axis = len(shape_of(step.node)) - mask.ndim
        return Positions(axis, mask.reshape(-1) != 0)

    def _find_weights(self) -> None:
        """Collect the products whose weights are constants; those of a hypernetwork are not."""
        for step in self.masked.steps.values():
            if not step.is_product:
                continue
            weight, bias = step.argument("weight"), step.argument("bias")
            if weight in self.constants and (bias is None or bias in self.constants):
                self.weights[step.node] = self.constants[weight], self.constants.get(bias)

    def _read(self, step: Step) -> Part:
        """Return the channels of its input that a product reads: those that are not zero."""
        zero = find_zeros(step.argument("input"), self.masked.steps, self.masks)
        if zero is None or zero.axis != step.channel_axis:
            return None
        return Positions(zero.axis, ~zero.chosen)

    def _can_fold(self, norm: Step) -> bool:
        """Return whether a norm can become part of the product before it."""
        node = norm.argument("input")
        # Another reader of the product wants it without the norm.
        if node not in self.weights or len(node.users) > 1:
            return False
        # Batch statistics are known when the network runs, and no sooner.
        if norm.argument("training", False) or len(shape_of(node)) < 2:
            return False
        product = self.masked.steps[node]
        # Rows of the weight must be the channels that the norm scales.
        if product.channel_axis != 1 or "transpose" in product.operator:
            return False
        if norm.argument("running_mean") is None or norm.argument("running_var") is None:
            return False
        return all(one is None or one in self.constants for one in _norm_arguments(norm))

    def _fold(self, norm: Step) -> None:
        """Make a norm part of the product before it."""
        node = norm.argument("input")
        weight, bias = self.weights[node]
        mean, variance, scale, shift = (
            None if one is None else self.constants[one] for one in _norm_arguments(norm)
        )
        numbers = Norm(mean, variance, norm.argument("eps"), scale, shift)  # type: ignore[arg-type]
        self.weights[node] = fold_norm(weight, bias, numbers)
        self.folded.add(norm.node)


def _norm_arguments(norm: Step) -> list[Node | None]:
    """Return the tensors of a norm: mean, variance, scale and shift."""
    return [norm.argument(name) for name in ("running_mean", "running_var", "weight", "bias")]
