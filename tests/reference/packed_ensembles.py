"""Packed-Ensembles as one wide network, for a chain of layers.

Laurent et al., "Packed-Ensembles for efficient uncertainty estimation", ICLR 2023, Figure 3 and Eq. (6).
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VERSIONS = ("rearranged", "full", "masked")
"""(b): the input is repeated for grouped convolutions; (c): the first convolution is full; (c) with masks
on dense convolutions in place of groups, Eq. (6).
"""


def packed_forward(members: Sequence[nn.Sequential], x: Tensor, version: str) -> Tensor:
    """The outputs of all members by one network with their channels side by side, `[members, batch, ...]`."""
    count = len(members)
    x = x.repeat(1, count, 1, 1) if version == "rearranged" else x
    for place, copies in enumerate(zip(*members, strict=True)):
        layer = copies[0]
        if isinstance(layer, nn.Conv2d):
            weight, bias = beside(copies, "weight"), beside(copies, "bias")
            groups = layer.groups if place == 0 and version != "rearranged" else count * layer.groups
            if version == "masked":
                weight, groups = block_diagonal(weight, groups), 1
            x = F.conv2d(x, weight, bias, layer.stride, layer.padding, groups=groups)
        elif isinstance(layer, nn.BatchNorm2d):
            x = F.batch_norm(x, None, None, beside(copies, "weight"), beside(copies, "bias"), training=True)
        elif isinstance(layer, nn.Linear):
            apart = x.unflatten(1, (count, -1)).unbind(1)
            return torch.stack([own(features) for own, features in zip(copies, apart, strict=True)])
        else:
            x = layer(x)
    return x.unflatten(1, (count, -1)).transpose(0, 1)


def beside(copies: Sequence[nn.Module], name: str) -> Tensor:
    """The parameter of all members along the axis of output channels."""
    return torch.cat([getattr(copy, name) for copy in copies])


def block_diagonal(weight: Tensor, groups: int) -> Tensor:
    """The dense weight of a grouped convolution, zero wherever channels belong to different groups."""
    blocks = weight.chunk(groups)
    rows = [
        torch.cat([block if place == own else torch.zeros_like(block) for place in range(groups)], 1)
        for own, block in enumerate(blocks)
    ]
    return torch.cat(rows)
