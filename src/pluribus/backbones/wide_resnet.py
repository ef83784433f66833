"""Wide residual networks: few layers of many channels, for small images.

Zagoruyko and Komodakis, "Wide Residual Networks", BMVC 2016.

Blocks are pre-activated: normalise, rectify, convolve, twice. As in the networks that Laurent et al.,
"Packed-Ensembles for Efficient Uncertainty Estimation", ICLR 2023, count in their Table 1: the stride
is on the second convolution of a block, and every convolution has a bias.
"""

from functools import partial

from torch import Tensor, nn

from pluribus.backbones.parts import classifier, conv3x3, counts, drop, stage
from pluribus.ranges import check, invalid


class WideBlock(nn.Module):
    """Two pre-activated 3x3 convolutions with dropout between them, and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.relu = nn.ReLU()
        self.conv1 = conv3x3(inputs, outputs, bias=True)
        self.dropout = drop(dropout)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = conv3x3(outputs, outputs, stride, bias=True)
        # A shortcut without weights is exact, and used wherever shapes allow it.
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, kernel_size=1, stride=stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.dropout(self.conv1(self.relu(self.bn1(x))))
        out = self.conv2(self.relu(self.bn2(out)))
        total: Tensor = out + self.shortcut(x)
        return total


def wide_resnet(
    depth: int = 28, widen: int = 10, classes: int = 10, in_channels: int = 3, dropout: float = 0.0
) -> nn.Sequential:
    """Build three stages of wide blocks: `[batch, in_channels, height, width]` to `[batch, classes]`.

    Args:
        depth: Number of layers, 10, 16, 22, 28, …: 4 and 6 for each block of a stage.
        widen: Factor on the 16, 32 and 64 channels of the stages, at least 1.
        classes: Number of logits, at least 1.
        in_channels: Channels of the images, at least 1.
        dropout: Rate between the convolutions of a block, in [0, 1); 0.3 in the code of Laurent et al.

    Example:
        >>> wide_resnet(16, 4)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    counts(widen=widen, classes=classes, in_channels=in_channels)
    check("depth", depth, int, at_least=10)
    if depth % 6 != 4:
        raise invalid("depth", "4 and a multiple of 6", depth)
    check("dropout", dropout, float, at_least=0, below=1)

    blocks = (depth - 4) // 6
    channels = [16, 16 * widen, 32 * widen, 64 * widen]
    block = partial(WideBlock, dropout=dropout)
    stages = [
        stage(block, [channels[index]] + [channels[index + 1]] * blocks, stride=2 if index else 1)
        for index in range(3)
    ]
    end = {"bn_final": nn.BatchNorm2d(channels[-1]), "relu": nn.ReLU()}
    return classifier({"conv1": conv3x3(in_channels, 16, bias=True)}, stages, channels[-1], classes, end)
