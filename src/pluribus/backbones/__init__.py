"""Networks of the papers as ordinary modules; each builder returns one with fresh weights."""

from collections.abc import Callable

from torch import nn

from pluribus.backbones.cnn import cnn
from pluribus.backbones.mlp import mlp, residual_mlp
from pluribus.backbones.pyramidnet import pyramidnet
from pluribus.backbones.resnet import resnet18, resnet34, resnet50, resnet101
from pluribus.backbones.vgg import vgg
from pluribus.backbones.vit import vit
from pluribus.backbones.wide_resnet import wide_resnet

BUILDERS = (
    mlp,
    residual_mlp,
    cnn,
    vgg,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    wide_resnet,
    pyramidnet,
    vit,
)
BACKBONES: dict[str, Callable[..., nn.Module]] = {builder.__name__: builder for builder in BUILDERS}
"""All builders by name."""

__all__ = [
    "BACKBONES",
    "cnn",
    "mlp",
    "pyramidnet",
    "residual_mlp",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "vgg",
    "vit",
    "wide_resnet",
]
