"""Aligned masks: masks rounded up to widths that processors like, for members that are cut out.

A channel that is added to a mask would change the result. So the layers that read it give it no weight, and a
mask is rounded only where all of its readers are such layers.
"""

from collections.abc import Mapping

from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.masks.demand import find_zeros, keeps_zeros
from pluribus.mechanisms.masks.positions import Positions, rounded_up
from pluribus.mechanisms.masks.steps import Step

Weights = dict[Node, tuple[Tensor, Tensor | None]]
"""By product, its weight and its bias."""


def align_masks(
    steps: Mapping[Node, Step], masks: Mapping[Node, Positions], weights: Weights, align: int
) -> tuple[dict[Node, Positions], dict[Node, Positions]]:
    """Return masks of rounded widths, and by product the columns of its weight that must be zero.

    These are the channels that the masks before made zero.

    Args:
        steps: All steps.
        masks: For every product with a mask, where the mask is one.
        weights: For every product with constant weights, its weight and bias.
        align: Widths from 32 on are rounded up to a multiple of it.
    """
    aligned = dict(masks)
    for node, mask in masks.items():
        wide = rounded_up(mask, align)
        if wide is not None and _ends_in_products(node, steps, masks, weights):
            aligned[node] = wide
    zeros: dict[Node, Positions] = {}
    for node in weights:
        # By the masks before: they tell what was zero.
        zero = _masked_columns(steps[node], steps, masks)
        if zero is not None:
            zeros[node] = zero
    return aligned, zeros


def _ends_in_products(
    value: Node, steps: Mapping[Node, Step], masks: Mapping[Node, Positions], weights: Weights
) -> bool:
    """Return whether all paths from a masked value end in products with constant weights."""
    for reader in value.users:
        step = steps.get(reader)
        # The value is a result of the network.
        if step is None:
            return False
        if reader in weights:
            # A product may read the value as its weight, or sum over another axis than that of the mask.
            if step.argument("input") is not value or _masked_columns(step, steps, masks) is None:
                return False
            continue
        if not keeps_zeros(step) or not _ends_in_products(reader, steps, masks, weights):
            return False
    return True


def _masked_columns(
    step: Step, steps: Mapping[Node, Step], masks: Mapping[Node, Positions]
) -> Positions | None:
    """Return the channels that a product sums over and that a mask makes zero; None where there are none."""
    zero = find_zeros(step.argument("input"), steps, masks)
    return zero if zero is not None and zero.axis == step.channel_axis else None
