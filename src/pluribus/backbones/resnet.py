"""Residual networks.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016.

A block adds its input to what its convolutions make of it. Layers are named as in torchvision, so
that weights of either load into the other. Deviations from the paper: the stride of a bottleneck is
on its 3x3 convolution, as in torchvision; convolutions start from PyTorch's default weights; the
`cifar` stem is a 3x3 convolution without pooling.
"""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from pluribus.backbones.parts import classifier, conv3x3, counts, stage
from pluribus.ranges import check


def conv1x1(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """Return a 1x1 convolution without bias."""
    return nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride, bias=False)


def projection(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Return the shortcut of a block: an identity, or a 1x1 convolution if the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(conv1x1(inputs, outputs, stride), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.conv2 = conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        total: Tensor = self.relu(out + self.downsample(x))
        return total


class Bottleneck(nn.Module):
    """A 1x1, a 3x3 and a 1x1 convolution, the first two at a quarter of the channels, and a shortcut."""

    expansion: ClassVar[int] = 4

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        planes = outputs // self.expansion
        self.conv1 = conv1x1(inputs, planes)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = conv3x3(planes, planes, stride)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = conv1x1(planes, outputs)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.downsample = projection(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        total: Tensor = self.relu(out + self.downsample(x))
        return total


def stem_layers(stem: str, in_channels: int, width: int) -> dict[str, nn.Module]:
    """Return the layers before the first stage."""
    # An image of 32 pixels would have 8 left after the stem of ImageNet, too few for four stages.
    kernel, stride = (3, 1) if stem == "cifar" else (7, 2)
    conv = nn.Conv2d(in_channels, width, kernel, stride=stride, padding=kernel // 2, bias=False)
    pool = nn.Identity() if stem == "cifar" else nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
    return {"conv1": conv, "bn1": nn.BatchNorm2d(width), "relu": nn.ReLU(), "maxpool": pool}


def resnet(
    block: type[BasicBlock] | type[Bottleneck],
    blocks: Sequence[int],
    classes: int,
    in_channels: int,
    stem: str,
    width: int,
) -> nn.Sequential:
    """Build a network with `blocks[i]` blocks in stage `layer{i + 1}`."""
    counts(classes=classes, in_channels=in_channels, width=width)
    check("stem", stem, choices=("cifar", "imagenet"))
    channels, stages = width, []
    for index, count in enumerate(blocks):
        outputs = block.expansion * width * 2**index
        stages.append(stage(block, [channels] + [outputs] * count, stride=2 if index else 1))
        channels = outputs
    return classifier(stem_layers(stem, in_channels, width), stages, channels, classes)


def resnet18(classes: int = 10, in_channels: int = 3, stem: str = "cifar", width: int = 64) -> nn.Sequential:
    """Build 18 layers of basic blocks: `[batch, in_channels, height, width]` to `[batch, classes]`.

    Args:
        classes: Number of logits, at least 1.
        in_channels: Channels of the images, at least 1.
        stem: `cifar`, a 3x3 convolution for small images, or `imagenet`, a 7x7 one and pooling that
            together divide each side by 4.
        width: Channels of the stem, at least 1; all other channels scale with it.

    Example:
        >>> resnet18(classes=100)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 100])
    """
    return resnet(BasicBlock, (2, 2, 2, 2), classes, in_channels, stem, width)


def resnet34(classes: int = 10, in_channels: int = 3, stem: str = "cifar", width: int = 64) -> nn.Sequential:
    """Build 34 layers of basic blocks; arguments and shapes as in `resnet18`."""
    return resnet(BasicBlock, (3, 4, 6, 3), classes, in_channels, stem, width)


def resnet50(classes: int = 10, in_channels: int = 3, stem: str = "cifar", width: int = 64) -> nn.Sequential:
    """Build 50 layers of bottlenecks; arguments and shapes as in `resnet18`."""
    return resnet(Bottleneck, (3, 4, 6, 3), classes, in_channels, stem, width)


def resnet101(classes: int = 10, in_channels: int = 3, stem: str = "cifar", width: int = 64) -> nn.Sequential:
    """Build 101 layers of bottlenecks; arguments and shapes as in `resnet18`."""
    return resnet(Bottleneck, (3, 4, 23, 3), classes, in_channels, stem, width)
