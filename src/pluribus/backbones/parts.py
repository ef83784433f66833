"""What several families of networks are built from."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from torch import Tensor, nn

from pluribus.settings import check, invalid

Block = Callable[[int, int, int], nn.Module]
"""A block from its input channels, output channels and stride."""


def counts(**values: object) -> None:
    """Checks for integers of at least 1, each under its own name."""
    for name, value in values.items():
        check(name, value, int, at_least=1)


def wholes(name: str, values: object) -> None:
    """Checks for a sequence of integers of at least 1."""
    if not isinstance(values, Sequence):
        raise invalid(name, "a sequence of whole numbers", values)
    counts(**{f"{name}[{index}]": value for index, value in enumerate(values)})


class Residual(nn.Sequential):
    """x + f(x), with f the chain of its children; the shape of x stays."""

    def forward(self, x: Tensor) -> Tensor:
        out = x
        for module in self:
            out = module(out)
        return x + out


def drop(rate: float) -> nn.Module:
    """Dropout, or nothing at rate 0: a network without dropout holds no random layer."""
    return nn.Dropout(rate) if rate else nn.Identity()


def conv3x3(inputs: int, outputs: int, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """A 3x3 convolution that keeps the size of the image, up to its stride."""
    return nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=bias)


def stage(block: Block, channels: Iterable[int], stride: int = 1) -> nn.Sequential:
    """Blocks from each number of channels to the next; the first one has the stride."""
    steps = enumerate(pairwise(channels))
    return nn.Sequential(*(block(a, b, 1 if index else stride) for index, (a, b) in steps))


def classifier(
    stem: Mapping[str, nn.Module],
    stages: Iterable[nn.Module],
    features: int,
    classes: int,
    end: Mapping[str, nn.Module] | None = None,
) -> nn.Sequential:
    """The stem, the stages `layer1`, `layer2`, …, the end, and logits `fc` of the pooled features.

    An image network of any family: `[batch, channels, height, width]` to `[batch, classes]`.
    """
    layers = {f"layer{number}": layer for number, layer in enumerate(stages, start=1)}
    head = {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(features, classes)}
    return nn.Sequential(OrderedDict({**stem, **layers, **(end or {}), **head}))
