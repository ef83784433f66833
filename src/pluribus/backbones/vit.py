"""Vision transformer: attention between the patches of an image.

Dosovitskiy et al., "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", ICLR 2021.

The defaults are the small network of Ferianc, Fan and Rodrigues, "SAE: Single Architecture Ensemble
Neural Networks", BMVC 2024: patches are normalised before and after their embedding, queries, keys
and values have no bias, class token and positions start as standard normal numbers. Deviation: dropout
acts on the output of attention and not on its weights, so every random part is a layer of its own.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pluribus.backbones.parts import Residual, counts, drop
from pluribus.errors import InputError
from pluribus.ranges import check, invalid


class Patches(nn.Module):
    """`[batch, channels, size, size]` to `[batch, patches, channels * patch * patch]`, row by row."""

    def __init__(self, size: int, patch: int) -> None:
        super().__init__()
        self.size = size
        self.patch = patch

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2:] != (self.size, self.size):
            raise InputError(
                f"images must be [batch, channels, {self.size}, {self.size}], "
                f"got shape {tuple(x.shape)}. Set image_size to their size."
            )
        # No view of a fixed batch size: ensembles fold members into the batch.
        tiles = torch.unflatten(torch.unflatten(x, 3, (-1, self.patch)), 2, (-1, self.patch))
        return tiles.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


class Attention(nn.Module):
    """Multi-head self-attention of `[batch, tokens, width]`; each head sees width / heads numbers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            torch.unflatten(project(x), -1, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        seen = F.scaled_dot_product_attention(query, key, value)
        mixed: Tensor = self.output(seen.transpose(1, 2).flatten(2))
        return mixed


def encoder(width: int, heads: int, mlp: int, dropout: float) -> nn.Sequential:
    """Return one block: x + attention(norm(x)), then x + mlp(norm(x))."""
    attention = Residual(
        OrderedDict(norm=nn.LayerNorm(width), attention=Attention(width, heads), dropout=drop(dropout))
    )
    perceptron = Residual(
        OrderedDict(
            norm=nn.LayerNorm(width),
            linear1=nn.Linear(width, mlp),
            gelu=nn.GELU(),
            dropout1=drop(dropout),
            linear2=nn.Linear(mlp, width),
            dropout2=drop(dropout),
        )
    )
    return nn.Sequential(OrderedDict(attention=attention, mlp=perceptron))


class VisionTransformer(nn.Module):
    """Patches with a class token in front, encoder blocks, and logits of the class token.

    Args:
        embedding: `[batch, channels, height, width]` to `[batch, patches, width]`.
        blocks: Each keeps `[batch, 1 + patches, width]`.
        patches: Number of patches of an image.
        width: Numbers per token.
        classes: Number of logits.
        dropout: Rate on the embedded tokens.
    """

    def __init__(
        self,
        embedding: nn.Module,
        blocks: nn.Sequential,
        patches: int,
        width: int,
        classes: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.class_token = nn.Parameter(torch.empty(1, 1, width))
        self.positions = nn.Parameter(torch.empty(1, 1 + patches, width))
        self.dropout = drop(dropout)
        self.blocks = blocks
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the class token and the positions anew."""
        nn.init.normal_(self.class_token)
        nn.init.normal_(self.positions)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.embedding(x)
        first = self.class_token.expand(x.shape[0], -1, -1)
        tokens = self.dropout(torch.cat([first, patches], dim=1) + self.positions)
        logits: Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return logits


def vit(
    classes: int = 10,
    in_channels: int = 3,
    image_size: int = 32,
    patch: int = 4,
    width: int = 128,
    depth: int = 6,
    heads: int = 4,
    mlp: int = 512,
    dropout: float = 0.1,
) -> VisionTransformer:
    """Build encoder blocks on patches: `[batch, in_channels, image_size, image_size]` to `[batch, classes]`.

    Args:
        classes: Number of logits, at least 1.
        in_channels: Channels of the images, at least 1.
        image_size: Height and width of the images, a multiple of `patch`.
        patch: Height and width of a patch, at least 1.
        width: Numbers per token, a multiple of `heads`.
        depth: Number of encoder blocks, `blocks.0` and on, at least 1.
        heads: Attention heads, at least 1.
        mlp: Hidden units of a block's perceptron, at least 1.
        dropout: Rate after the embedding, attention and both layers of the perceptron, in [0, 1).

    Example:
        >>> vit(image_size=8, depth=2)(torch.zeros(2, 3, 8, 8)).shape
        torch.Size([2, 10])
    """
    counts(classes=classes, in_channels=in_channels, image_size=image_size, patch=patch)
    counts(width=width, depth=depth, heads=heads, mlp=mlp)
    check("dropout", dropout, float, at_least=0, below=1)
    if image_size % patch:
        raise invalid("image_size", f"a multiple of patch={patch}", image_size)
    if width % heads:
        raise invalid("width", f"a multiple of heads={heads}", width)

    inputs = in_channels * patch**2
    embedding = nn.Sequential(
        OrderedDict(
            patches=Patches(image_size, patch),
            norm1=nn.LayerNorm(inputs),
            linear=nn.Linear(inputs, width),
            norm2=nn.LayerNorm(width),
        )
    )
    blocks = nn.Sequential(*(encoder(width, heads, mlp, dropout) for _ in range(depth)))
    return VisionTransformer(embedding, blocks, (image_size // patch) ** 2, width, classes, dropout)
