"""Pyramidal residual networks: a few channels more in every block.

Han, Kim and Kim, "Deep Pyramidal Residual Networks", CVPR 2017.

The k-th of N basic blocks has D_k channels; its shortcut is its input, zero-padded to D_k channels,
and average-pooled where the block has a stride.

    D_k = round(16 + k alpha / N),    k = 0 … N

    symbol   here
    N        blocks
    D_k      pyramid()

Deviation: the paper rounds down; the authors' PyTorch code rounds to the nearest whole number, halves to
even, as here. Convolutions start as there: normal with variance 2 / fan-out.
"""

from torch import Tensor, nn
from torch.nn import functional as F

from pluribus.backbones.parts import classifier, conv3x3, counts, stage
from pluribus.ranges import check, invalid


def pyramid(blocks: int, alpha: float) -> list[int]:
    """Return the channels of the stem and after each block."""
    return [round(16 + alpha * k / blocks) for k in range(blocks + 1)]


class PyramidBlock(nn.Module):
    """Two 3x3 convolutions between three normalisations, one ReLU, and a shortcut without weights."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = conv3x3(inputs, outputs, stride)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()
        self.conv2 = conv3x3(outputs, outputs)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Identity() if stride == 1 else nn.AvgPool2d(stride, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.relu(self.bn2(self.conv1(self.bn1(x))))
        out = self.bn3(self.conv2(out))
        added = out.shape[1] - x.shape[1]
        return out + F.pad(self.downsample(x), (0, 0, 0, 0, 0, added))


def pyramidnet(
    depth: int = 110, alpha: float = 270, classes: int = 100, in_channels: int = 3
) -> nn.Sequential:
    """Build three stages of pyramid blocks: `[batch, in_channels, height, width]` to `[batch, classes]`.

    Args:
        depth: Number of layers, 8, 14, …, 110, …: 2 and 6 for each block of a stage.
        alpha: Channels added from the first block to the last, above 0.
        classes: Number of logits, at least 1.
        in_channels: Channels of the images, at least 1.

    Example:
        >>> pyramidnet(20, 30)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 100])
    """
    check("depth", depth, int, at_least=8)
    if depth % 6 != 2:
        raise invalid("depth", "2 and a multiple of 6", depth)
    check("alpha", alpha, float, above=0)
    counts(classes=classes, in_channels=in_channels)

    count = (depth - 2) // 6
    channels = pyramid(3 * count, alpha)
    stages = [
        stage(PyramidBlock, channels[start : start + count + 1], stride=2 if start else 1)
        for start in (0, count, 2 * count)
    ]
    stem = {"conv1": conv3x3(in_channels, 16), "bn1": nn.BatchNorm2d(16)}
    end = {"bn_final": nn.BatchNorm2d(channels[-1]), "relu": nn.ReLU()}
    network = classifier(stem, stages, channels[-1], classes, end)
    # PyTorch's default initialisation is narrower than that of the authors.
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return network
