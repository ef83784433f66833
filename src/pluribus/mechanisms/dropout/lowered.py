"""Kept dropout as tensors: masks that follow from a seed become buffers, which a plan can read."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.mechanisms.dropout.kept import Draw, GivenMasks, keep_mask
from pluribus.mechanisms.network.dry_run import derived_seed, dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import buffer_table


class DropoutAsTensors(nn.Module):
    """A network whose dropout masks are buffers, so that a member is nothing but tensors.

    Args:
        network: The network.
        draw: Any draw of its masks.
        inputs: One batch, to see what is dropped.

    Attributes:
        drawn: Of each mask, its shape and its rate.
    """

    def __init__(self, network: nn.Module, draw: Draw, inputs: Inputs) -> None:
        super().__init__()
        self.network, self.draw = network, draw
        inputs = inputs.copy()
        with dry_run(network, training=False), torch.no_grad(), draw(network, inputs.batch) as masks:
            network(*inputs.args, **inputs.keywords)
        self.drawn = tuple(masks.drawn)
        for name, mask in named_masks(self.drawn, draw.seed).items():
            self.register_buffer(name, mask.to(next(inputs.tensors()).device))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the network returns."""
        masks = GivenMasks([mask for mask in buffer_table(self).values() if mask is not None])
        with self.draw(self.network, 0, masks):
            return self.network(*args, **kwargs)


def named_masks(drawn: Sequence[tuple[tuple[int, ...], float]], seed: int) -> dict[str, Tensor]:
    """Return all masks of a seed, by their names in `DropoutAsTensors`."""
    return {
        f"mask_{call}": keep_mask(shape, rate, derived_seed(seed, call))
        for call, (shape, rate) in enumerate(drawn)
    }
