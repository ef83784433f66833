"""A small convolutional network, for digits and other images of 8x8 up to 32x32 pixels."""

from torch import nn

from pluribus.backbones.vgg import vgg


def cnn(classes: int = 10, in_channels: int = 1, width: int = 16) -> nn.Sequential:
    """Build three stages of one convolution: `[batch, in_channels, height, width]` to `[batch, classes]`.

    A `vgg` of `width`, twice and four times `width` channels, pooled after the first two stages.

    Args:
        classes: Number of logits, at least 1.
        in_channels: Channels of the images, at least 1; each side is at least 4 pixels.
        width: Channels of the first stage, at least 1.

    Example:
        >>> cnn()(torch.zeros(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    return vgg(classes, in_channels, planes=(1, 2, 4), layers=(1, 1, 1), pooling=(1, 1, 0), width=width)
