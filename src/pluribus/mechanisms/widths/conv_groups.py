"""Groups inside the convolutions of a network, as Packed-Ensembles have them within each member."""

import math
from collections.abc import Iterable, Iterator, Mapping

from torch import Tensor, nn

from pluribus.mechanisms.network.torch_private import Convolution
from pluribus.mechanisms.widths.groups import Axis, Group, Widths


def reduced(gamma: int, inputs: int, outputs: int, min_channels: int) -> int:
    """Return the largest number of groups up to `gamma` that fits; 1 where none does.

    Groups fit if they divide both widths and if every group has at least `min_channels` inputs.
    """
    for groups in range(gamma, 1, -1):
        divides = inputs % groups == 0 and outputs % groups == 0
        if divides and inputs / groups >= min_channels:
            return groups
    return min(gamma, 1)


def inner_convolutions(widths: Widths) -> Iterator[tuple[str, Convolution, tuple[Axis, Axis]]]:
    """Yield the convolutions between inner widths, with the weight's axes of inputs and outputs.

    A convolution that reads the network's input or makes its output is not one of them, nor is a
    depthwise one, nor one whose weight is computed by a parametrisation.
    """
    for name, layer in widths.network.module.named_modules():
        if not isinstance(layer, Convolution) or layer.groups == layer.in_channels:
            continue
        weight = f"{name}.weight".lstrip(".")
        # Transposed weights are `[in, out / groups, ...]`, others `[out, in / groups, ...]`.
        axes = ((weight, 0), (weight, 1)) if layer.transposed else ((weight, 1), (weight, 0))
        # A fixed axis, such as that of the network's input, belongs to no group.
        if all(axis in widths.axes and widths.groups_in(widths.axes[axis]) for axis in axes):
            yield name, layer, axes


def multiples(
    widths: Widths, factor: float, gammas: Mapping[str, int], min_channels: int
) -> dict[Group, int]:
    """Return what widths must be divisible by, so that convolutions can have their groups.

    Args:
        widths: The groups of the network's channels.
        factor: Of every width, above 0.
        gammas: By layer, how many groups are wished for; 1 if not named.
        min_channels: Fewest inputs of a group; a convolution with fewer is left out.
    """
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
    """Give convolutions of a resized network their groups, in place; weights lose what no group reads.

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
        # A convolution that has groups already is cut within each of them.
        groups = layer.groups
        inputs, outputs = layer.in_channels // groups, layer.out_channels // groups
        gamma = reduced(gammas.get(name, 1), inputs, outputs, min_channels)
        became[name] = gamma
        if gamma > 1:
            layer.groups = groups * gamma
            # Each group reads its own inputs, a part of all: so many columns remain.
            weight: Tensor = layer.weight.detach()[:, : layer.weight.shape[1] // gamma].clone()
            layer.weight = nn.Parameter(weight, layer.weight.requires_grad)
    return became
