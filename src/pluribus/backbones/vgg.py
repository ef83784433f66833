"""VGG: stages of plain convolutions, for small images.

Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.

The defaults are the narrow network of Ferianc, Fan and Rodrigues, "SAE: Single Architecture Ensemble
Neural Networks", BMVC 2024: BatchNorm after each convolution, one linear layer on pooled features.
"""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from pluribus.backbones.parts import classifier, conv3x3, counts, stage, wholes
from pluribus.ranges import check, invalid


def unit(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Return a 3x3 convolution without bias, BatchNorm and ReLU."""
    conv = conv3x3(inputs, outputs, stride)
    return nn.Sequential(OrderedDict(conv=conv, norm=nn.BatchNorm2d(outputs), relu=nn.ReLU()))


def vgg(
    classes: int = 10,
    in_channels: int = 3,
    planes: Sequence[int] = (16, 32, 64, 128, 128),
    layers: Sequence[int] = (1, 1, 2, 2, 2),
    pooling: Sequence[int] = (1, 1, 1, 1, 0),
    width: int = 1,
) -> nn.Sequential:
    """Build stages of plain convolutions: `[batch, in_channels, height, width]` to `[batch, classes]`.

    Args:
        classes: Number of logits, at least 1.
        in_channels: Channels of the images, at least 1; each side halves once per pooled stage.
        planes: Channels of each stage, `layer1` and on, each at least 1.
        layers: Convolutions of each stage, each at least 1.
        pooling: 1 for a stage that ends in a 2x2 max-pooling, else 0.
        width: Factor on all planes, at least 1.

    Example:
        >>> vgg(classes=200)(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 200])
    """
    counts(classes=classes, in_channels=in_channels, width=width)
    wholes("planes", planes)
    wholes("layers", layers)
    if not planes:
        raise invalid("planes", "one number per stage, at least one", planes)
    for name, values in {"layers": layers, "pooling": pooling}.items():
        if not isinstance(values, Sequence) or len(values) != len(planes):
            raise invalid(name, f"as long as planes, {len(planes)} stages", values)
    for index, value in enumerate(pooling):
        check(f"pooling[{index}]", value, choices=(0, 1))

    channels = [in_channels, *(width * plane for plane in planes)]
    stages = []
    for before, after, count, pooled in zip(channels, channels[1:], layers, pooling, strict=False):
        units = stage(unit, [before] + [after] * count)
        if pooled:
            units.append(nn.MaxPool2d(2))
        stages.append(units)
    return classifier({}, stages, channels[-1], classes)
