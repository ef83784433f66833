"""Groups inside the convolutions of a network, as Packed-Ensembles have them within each member."""

import math
from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor, nn

from pluribus.mechanisms.widths.groups import Axis, Group, Widths

Convolution = nn.modules.conv._ConvNd


def reduced(gamma: int, inputs: int, outputs: int, min_channels: int) -> int:
    """The largest number of groups up to `gamma` that divides both widths and leaves every group
    `min_channels` inputs; 1 where there is none.
    """
    while gamma > 1 and (inputs % gamma or outputs % gamma or inputs / gamma < min_channels):
        gamma -= 1
    return gamma


def inner_convolutions(widths: Widths) -> Iterator[tuple[str, Convolution, tuple[Axis, Axis]]]:
    """The convolutions between inner widths, with the weight's axes of inputs and outputs.

    A convolution that reads the network's input or makes its output is not one of them, nor is a
    depthwise one, nor one whose weight is computed by a parametrisation.
    """
    for name, layer in widths.network.module.named_modules():
        if isinstance(layer, Convolution) and layer.groups != layer.in_channels:
            weight = f"{name}.weight".lstrip(".")
            axes = ((weight, 0), (weight, 1)) if layer.transposed else ((weight, 1), (weight, 0))
            if all(axis in widths.axes and widths.groups_in(widths.axes[axis]) for axis in axes):
                yield name, layer, axes


def multiples(
    widths: Widths, factor: float, gammas: Mapping[str, int], min_channels: int
) -> dict[Group, int]:
    """What widths must be divisible by, so that convolutions with enough channels can have their groups."""
    sizes = widths.sizes(factor)
    found = dict.fromkeys(widths.groups, 1)
    for name, _, axes in inner_convolutions(widths):
        gamma = gammas.get(name, 1)
        read = widths.size(widths.axes[axes[0]], sizes)
        if gamma > 1 and math.ceil(read / gamma) >= min_channels:
            for axis in axes:
                for group in widths.groups_in(widths.axes[axis]):
                    found[group] = math.lcm(found[group], gamma)
    return found


def regroup(
    module: nn.Module, names: Iterable[str], gammas: Mapping[str, int], min_channels: int
) -> dict[str, int]:
    """Gives convolutions of a resized network their groups, in place; weights lose what no group reads.

    Args:
        module: What `resize` returned.
        names: Those of `inner_convolutions`.
        gammas: By layer, how many groups are wished for; 1 if not named.
        min_channels: Fewest inputs of a group; below, there are fewer groups.

    Returns:
        By layer, how many groups it was cut into.
    """
    became = {}
    for name in names:
        layer = module.get_submodule(name)
        if not isinstance(layer, Convolution):
            continue
        groups = layer.groups
        gamma = reduced(
            gammas.get(name, 1), layer.in_channels // groups, layer.out_channels // groups, min_channels
        )
        became[name] = gamma
        if gamma > 1:
            layer.groups = groups * gamma
            weight: Tensor = layer.weight.detach()[:, : layer.weight.shape[1] // gamma].clone()
            layer.weight = nn.Parameter(weight, layer.weight.requires_grad)
    return became
