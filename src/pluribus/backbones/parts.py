"""Parts of several families of networks: checks of arguments, blocks, stages, the classifier."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from torch import Tensor, nn

from pluribus.ranges import check, invalid

Block = Callable[[int, int, int], nn.Module]
"""Makes a block from its input channels, output channels and stride."""


def counts(**values: object) -> None:
    """Raise `SettingError` unless each value is an integer of at least 1."""
    for name, value in values.items():
        check(name, value, int, at_least=1)


def wholes(name: str, values: object) -> None:
    """Raise `SettingError` unless this is a sequence of integers of at least 1."""
    if not isinstance(values, Sequence):
        raise invalid(name, "a sequence of whole numbers", values)
    counts(**{f"{name}[{index}]": value for index, value in enumerate(values)})


class Residual(nn.Sequential):
    """Compute x + f(x), where f is the chain of the children; f keeps the shape of x."""

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for module in self:
            out = module(out)
        return x + out


def drop(rate: float) -> nn.Module:
    """Return a dropout layer, or an identity at rate 0."""
    # Without this, methods that look for dropout would find a layer that never drops anything.
    return nn.Dropout(rate) if rate else nn.Identity()


def conv3x3(inputs: int, outputs: int, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """Return a 3x3 convolution that divides the size of the image by its stride."""
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=bias)


def stage(block: Block, channels: Iterable[int], stride: int = 1) -> nn.Sequential:
    """Return blocks from each number of channels to the next; the first block has the stride."""
    blocks = []
    for inputs, outputs in pairwise(channels):
        blocks.append(block(inputs, outputs, stride))
        # A stage reduces the size of the image once.
        stride = 1
    return nn.Sequential(*blocks)


def classifier(
    stem: Mapping[str, nn.Module],
    stages: Iterable[nn.Module],
    features: int,
    classes: int,
    end: Mapping[str, nn.Module] | None = None,
) -> nn.Sequential:
    """Return an image network: stem, stages `layer1`, `layer2`, …, end, pooling, and logits `fc`.

    It maps `[batch, channels, height, width]` to `[batch, classes]`.
    """
    layers = {f"layer{number}": layer for number, layer in enumerate(stages, start=1)}
    head = {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(features, classes)}
    return nn.Sequential(OrderedDict({**stem, **layers, **(end or {}), **head}))
