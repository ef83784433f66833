"""The models of the zoo, small and awkward to convert; `tests/cases.py` says what is true of each."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Residual(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Apply(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Tensor:
        return self.function(x)


class ThreeLayers(nn.Module):
    """Parent of those that differ only in what forward does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)


def pooled(channels: int, pool: nn.Module) -> list[nn.Module]:
    """The usual end of a convolutional classifier."""
    return [pool, nn.Flatten(), nn.Linear(channels, 3)]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def batch_norm_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def residual_cnn() -> nn.Module:
    stem = [nn.Conv2d(2, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    block = [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*stem, Residual(*block), nn.ReLU(), *pooled(8, nn.AdaptiveAvgPool2d(1)))


def grouped_cnn() -> nn.Module:
    grouped = nn.Conv2d(4, 8, 3, padding=1, groups=2)
    dilated = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
    depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
    body = [grouped, nn.ReLU(), dilated, nn.ReLU(), depthwise, nn.Conv2d(8, 12, 1), nn.ReLU()]
    return nn.Sequential(*body, *pooled(12, nn.AdaptiveMaxPool2d(1)))


def conv1d() -> nn.Module:
    body = [nn.Conv1d(2, 6, 3, stride=2), nn.ReLU(), nn.Conv1d(6, 8, 3), nn.ReLU()]
    return nn.Sequential(*body, *pooled(8, nn.AdaptiveMaxPool1d(1)))


def conv3d() -> nn.Module:
    body = [nn.Conv3d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.Conv3d(4, 6, 2), nn.ReLU()]
    return nn.Sequential(*body, *pooled(6, nn.AdaptiveAvgPool3d(1)))


def transposed_conv() -> nn.Module:
    down = [nn.Conv2d(2, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(6, 8, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*down, nn.ConvTranspose2d(8, 6, 2, stride=2), nn.ReLU(), nn.Conv2d(6, 3, 1))


class SharedModule(ThreeLayers):
    """One layer that forward calls twice."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self.first(x).relu()).relu()
        return self.head(self.middle(x).relu())


def repeated_child() -> nn.Module:
    """One layer under three names, in two parents."""
    layer = nn.Linear(8, 8)
    twice = nn.Sequential(layer, nn.ReLU(), layer)
    return nn.Sequential(nn.Linear(6, 8), twice, nn.ReLU(), Residual(nn.ReLU(), layer), nn.Linear(8, 3))


def tied_linears() -> nn.Module:
    """Two layers, one weight, two biases."""
    one, two = nn.Linear(8, 8), nn.Linear(8, 8)
    two.weight = one.weight
    return nn.Sequential(nn.Linear(6, 8), one, nn.ReLU(), two, nn.ReLU(), nn.Linear(8, 3))


def tied_embedding() -> nn.Module:
    """A language model whose output weight is its embedding; the classes are its vocabulary."""
    embedding, head = nn.Embedding(12, 6), nn.Linear(6, 12)
    head.weight = embedding.weight
    return nn.Sequential(embedding, nn.Linear(6, 6), nn.ReLU(), Apply(lambda x: x.mean(1)), head)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        return self.head((x + self.attention(x, x, x, need_weights=False)[0]).mean(1))


def transformer(depth: int | None = None, batch_first: bool = True) -> nn.Module:
    """A bare encoder layer, or an encoder of `depth` layers."""
    layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, dropout=0.1, batch_first=batch_first)
    encoder: nn.Module = layer if depth is None else nn.TransformerEncoder(layer, depth)
    if not batch_first:
        before, after = (Apply(lambda x: x.transpose(0, 1)) for _ in range(2))
        encoder = nn.Sequential(before, encoder, after)
    return nn.Sequential(nn.Linear(4, 8), encoder, Apply(lambda x: x.mean(1)), nn.Linear(8, 3))


class Listed(nn.Module):
    """Layers in a `ModuleList`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x).relu()
        return self.layers[-1](x)


class Branched(nn.Module):
    """Layers in a `ModuleDict`, their outputs concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleDict({"left": nn.Linear(6, 5), "right": nn.Linear(6, 7)})
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([branch(x).relu() for branch in self.branches.values()], dim=1))


class ListedParameters(nn.Module):
    """Weights in a `ParameterList`, with no layer at all."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([torch.randn(8, 6), torch.randn(3, 8)])

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(F.linear(x, self.weights[0]).tanh(), self.weights[1])


class MiniViT(nn.Module):
    """Bare class token and positions; attention and its dropout are functions, not modules."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.norm, self.head = nn.Conv2d(2, 8, 4, stride=4), nn.LayerNorm(8), nn.Linear(8, 3)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        query, key, value = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        drop = 0.1 if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=drop)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return self.head(x[:, 0])


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = nn.Linear(6, 8), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.head((self.left(x) * self.right(y)).tanh())


class Keywords(nn.Module):
    """Keywords in, a dict out."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.age, self.head = nn.Conv2d(1, 4, 3), nn.Linear(1, 4), nn.Linear(4, 3)

    def forward(self, *, image: Tensor, age: Tensor) -> dict[str, Tensor]:
        features = self.image(image).relu().mean((2, 3)) + self.age(age)
        return {"features": features, "logits": self.head(features.relu())}


class TupleOutput(ThreeLayers):
    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.head(self.middle(self.first(x).relu()).relu()),)


def frozen_trunk() -> nn.Module:
    network = residual_cnn()
    assert isinstance(network, nn.Sequential)
    network[:4].requires_grad_(False)
    return network


def recurrent(kind: type[nn.LSTM | nn.GRU], layers: int, dropout: float) -> nn.Module:
    layer = kind(4, 6, num_layers=layers, dropout=dropout, batch_first=True)
    return nn.Sequential(layer, Apply(lambda output: output[0][:, -1]), nn.Linear(6, 3))


class FunctionalDropout(ThreeLayers):
    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.first(x).relu(), 0.2, training=self.training)
        return self.head(self.middle(x).relu())


def dropout_layers() -> nn.Module:
    body = [nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Dropout2d(0.2), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(24, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def alpha_dropout() -> nn.Module:
    hidden = [nn.Linear(6, 8), nn.SELU(), nn.AlphaDropout(0.1)]
    return nn.Sequential(*hidden, nn.Linear(8, 8), nn.SELU(), nn.Linear(8, 3))


def normed_cnn(norm: nn.Module) -> nn.Module:
    body = [nn.Conv2d(2, 8, 3), norm, nn.ReLU(), nn.Conv2d(8, 8, 3), nn.ReLU()]
    return nn.Sequential(*body, *pooled(8, nn.AdaptiveAvgPool2d(1)))


def layer_norm() -> nn.Module:
    hidden = [nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU()]
    return nn.Sequential(*hidden, Residual(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()), nn.Linear(8, 3))


def parametrized_cnn(norm: Callable[[nn.Module], nn.Module]) -> nn.Module:
    body = [norm(nn.Conv2d(2, 6, 3)), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, norm(nn.Linear(24, 8)), nn.ReLU(), nn.Linear(8, 3))


class CustomMatmul(nn.Module):
    """Its own product with a bare parameter, one saved and one unsaved buffer."""

    scale: Tensor
    shift: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(6, 8)), nn.Linear(8, 3)
        self.register_buffer("scale", torch.tensor(0.5))
        self.register_buffer("shift", torch.linspace(-1, 1, 8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head((x @ self.weight * self.scale + self.shift).tanh())


def embedding_bag() -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(12, 6, mode="mean"), nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


class UnusedLayer(ThreeLayers):
    """A layer that forward never calls."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).relu())


class Checkpointed(ThreeLayers):
    """Runs its middle again in the backward pass."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        x = checkpoint(self.middle, x, use_reentrant=False) if self.training else self.middle(x)
        return self.head(x.relu())


class DataDependent(ThreeLayers):
    """Looks at the values of its input, so that no graph can be had."""

    def forward(self, x: Tensor) -> Tensor:
        if not x.isfinite().all():
            raise ValueError("x must be finite")
        return self.head(self.middle(self.first(x).relu()).relu())


class CountedBatch(ThreeLayers):
    """Counts its samples with `len`, which makes the batch size a constant of the graph."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu().reshape(len(x), 2, 4).flatten(1)
        return self.head(self.middle(x).relu())


def hugging_face(name: str, **settings: Any) -> nn.Module:
    """The model class of that name, from a config; nothing is downloaded."""
    import transformers

    config = getattr(transformers, name.partition("For")[0] + "Config")
    model: nn.Module = getattr(transformers, name)(config(num_labels=3, **settings))
    return model


TINY = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}


def hf_vit() -> nn.Module:
    sides = {"image_size": 8, "patch_size": 4, "initializer_range": 0.2}
    return hugging_face("ViTForImageClassification", **TINY, **sides)


def hf_resnet() -> nn.Module:
    sides = {"embedding_size": 4, "hidden_sizes": [8, 16], "depths": [1, 2]}
    return hugging_face("ResNetForImageClassification", **sides)


def hf_convnext() -> nn.Module:
    sides = {"num_stages": 2, "hidden_sizes": [4, 8], "depths": [1, 2], "drop_path_rate": 0.4}
    scales = {"initializer_range": 0.2, "layer_scale_init_value": 0.5}
    return hugging_face("ConvNextForImageClassification", **sides, **scales)


def hf_bert() -> nn.Module:
    sides = {"vocab_size": 12, "max_position_embeddings": 7, "initializer_range": 0.2}
    return hugging_face("BertForSequenceClassification", **TINY, **sides)


def monai_unet() -> nn.Module:
    from monai.networks.nets.unet import UNet

    return UNet(2, in_channels=1, out_channels=3, channels=(4, 6, 8), strides=(2, 2), num_res_units=1)


def monai_densenet() -> nn.Module:
    from monai.networks.nets.densenet import DenseNet121

    width: dict[str, Any] = {"init_features": 8, "growth_rate": 4, "bn_size": 2, "block_config": (2, 2)}
    return DenseNet121(spatial_dims=2, in_channels=1, out_channels=3, **width)
