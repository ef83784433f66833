"""The zoo: small models that are awkward to convert, each with inputs, a target and measured facts.

Every model has a few thousand parameters at most, because every method is tested on every case.
No weight or input has a side of length `BATCH` but the batch: an axis taken for another is noticed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

BATCH = 10

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]


@dataclass(frozen=True)
class Case:
    """One model, how to call it, and what is true of it.

    Args:
        name: Unique; the id of the case in test reports.
        build: Makes the model, in any dtype, from torch's global random numbers.
        inputs: A tensor, positional tensors or keyword tensors, batch first, the same at every call.
        classes: Number of logits.
        dense: Sides of the logit map of a segmentation; empty for one answer per sample.
        has_dropout: Drops units of its own, with positive probability, in train mode.
        has_drop_path: Drops whole residual branches by other means than a dropout operator.
        exports: `torch.export` with a dynamic batch takes it, in train and in eval mode.
        unused: Names of the trainable parameters that get no gradient.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    classes: int = 3
    dense: tuple[int, ...] = ()
    has_dropout: bool = False
    has_drop_path: bool = False
    exports: bool = True
    unused: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the logits: `[batch, classes, *dense]`."""
        return (BATCH, self.classes, *self.dense)

    @property
    def random_in_training(self) -> bool:
        """Whether two passes in train mode differ."""
        return self.has_dropout or self.has_drop_path

    def model(self) -> nn.Module:
        """The model in float64, as built and so in train mode, with the same weights at every call."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build().double()

    def target(self) -> Tensor:
        """One class per sample, `[batch, *dense]`."""
        return torch.randint(self.classes, (BATCH, *self.dense), generator=seeded(1))


def seeded(seed: int) -> torch.Generator:
    """Random numbers of their own."""
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Callable[[], Tensor]:
    """Standard normal inputs, `[batch, *shape]`."""
    return lambda: torch.randn(BATCH, *shape, dtype=torch.float64, generator=seeded(seed))


def tokens(length: int, vocabulary: int) -> Callable[[], Tensor]:
    """Token numbers, `[batch, length]`."""
    return lambda: torch.randint(vocabulary, (BATCH, length), generator=seeded(0))


def padded_tokens(length: int, vocabulary: int) -> Callable[[], dict[str, Tensor]]:
    """Token numbers and a mask that ends every second sequence early."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    mask[::2, -2:] = 0
    return lambda: {"input_ids": tokens(length, vocabulary)(), "attention_mask": mask.clone()}


def pixels(*shape: int) -> Callable[[], dict[str, Tensor]]:
    """Images under the keyword that Hugging Face gives them."""
    return lambda: {"pixel_values": normal(*shape)()}


def run(model: nn.Module, inputs: Inputs) -> Any:
    """The model's output as it is, inputs passed the way their container says."""
    if isinstance(inputs, Tensor):
        return model(inputs)
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def logits(output: Any) -> Tensor:
    """The logits in a model's output: itself, the first of a tuple, or under `"logits"`."""
    if isinstance(output, Mapping):
        output = output["logits"]
    elif isinstance(output, tuple | list):
        output = output[0]
    assert isinstance(output, Tensor)
    return output


def each(cases: list[Case]) -> pytest.MarkDecorator:
    """Runs a test once for every case, as its argument `case`."""
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def case_named(name: str) -> Case:
    """The case of that name."""
    return {case.name: case for case in CASES}[name]


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


CASES = [
    Case("mlp", mlp, normal(6)),
    Case("batch_norm_mlp", batch_norm_mlp, normal(6)),
    Case("residual_cnn", residual_cnn, normal(2, 8, 8)),
    Case("grouped_cnn", grouped_cnn, normal(4, 8, 8)),
    Case("conv1d", conv1d, normal(2, 16)),
    Case("conv3d", conv3d, normal(1, 6, 6, 6)),
    Case("transposed_conv", transposed_conv, normal(2, 8, 8), dense=(8, 8)),
    Case("shared_module", SharedModule, normal(6)),
    Case("repeated_child", repeated_child, normal(6)),
    Case("tied_linears", tied_linears, normal(6)),
    Case("tied_embedding", tied_embedding, tokens(7, 12), classes=12),
    Case("root_layer", lambda: nn.Linear(6, 3), normal(6)),
    Case("attention", Attention, normal(5, 4), has_dropout=True),
    Case("transformer_layer", transformer, normal(5, 4), has_dropout=True),
    Case("sequence_first", lambda: transformer(batch_first=False), normal(5, 4), has_dropout=True),
    Case("transformer_encoder", lambda: transformer(depth=2), normal(5, 4), has_dropout=True),
    Case("module_list", Listed, normal(6)),
    Case("module_dict", Branched, normal(6)),
    Case("parameter_list", ListedParameters, normal(6)),
    Case("mini_vit", MiniViT, normal(2, 8, 8), has_dropout=True),
    Case("two_inputs", TwoInputs, lambda: (normal(6)(), normal(4, seed=1)())),
    Case("keywords", Keywords, lambda: {"image": normal(1, 6, 6)(), "age": normal(1, seed=1)()}),
    Case("tuple_output", TupleOutput, normal(6)),
    Case("frozen_trunk", frozen_trunk, normal(2, 8, 8)),
    Case("lstm", lambda: recurrent(nn.LSTM, layers=2, dropout=0.2), normal(5, 4), has_dropout=True),
    Case("gru", lambda: recurrent(nn.GRU, layers=1, dropout=0.0), normal(5, 4)),
    Case("functional_dropout", FunctionalDropout, normal(6), has_dropout=True),
    Case("dropout_layers", dropout_layers, normal(2, 8, 8), has_dropout=True),
    Case("alpha_dropout", alpha_dropout, normal(6), has_dropout=True),
    Case("group_norm", lambda: normed_cnn(nn.GroupNorm(4, 8)), normal(2, 8, 8)),
    Case("instance_norm", lambda: normed_cnn(nn.InstanceNorm2d(8, affine=True)), normal(2, 8, 8)),
    Case("layer_norm", layer_norm, normal(6)),
    Case("weight_norm", lambda: parametrized_cnn(parametrizations.weight_norm), normal(2, 8, 8)),
    Case("spectral_norm", lambda: parametrized_cnn(parametrizations.spectral_norm), normal(2, 8, 8)),
    Case("custom_matmul", CustomMatmul, normal(6)),
    Case("embedding_bag", embedding_bag, tokens(7, 12)),
    Case("unused_layer", UnusedLayer, normal(6), unused=("middle.weight", "middle.bias")),
    Case("checkpointed", Checkpointed, normal(6)),
    Case("data_dependent", DataDependent, normal(6), exports=False),
    Case("counted_batch", CountedBatch, normal(6), exports=False),
    Case("hf_vit", hf_vit, pixels(3, 8, 8)),
    Case("hf_resnet", hf_resnet, pixels(3, 16, 16)),
    Case("hf_convnext", hf_convnext, pixels(3, 16, 16), has_drop_path=True),
    Case("hf_bert", hf_bert, padded_tokens(7, 12), has_dropout=True),
    Case("monai_unet", monai_unet, normal(1, 16, 16), dense=(16, 16)),
    Case("monai_densenet", monai_densenet, normal(1, 16, 16)),
]
