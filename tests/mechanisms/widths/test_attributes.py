"""Attributes: layers know their new sizes; foreign numbers follow or are found out."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.widths.attributes import candidates, follow_tensors, sizes_seen
from pluribus.mechanisms.widths.groups import read_widths
from pluribus.mechanisms.widths.resize import resize
from tests.cases import CASES, each

REFUSED = ("data_dependent", "mini_vit", "counted_batch")


def described(module):
    """Return what torch's layers print of themselves, which is all of their sizes."""
    return {
        name: layer.extra_repr()
        for name, layer in module.named_modules()
        if type(layer).__module__.startswith("torch.nn")
    }


@each([case for case in CASES if case.name not in REFUSED], few=True)
@pytest.mark.sampled(3)
def test_layers_know_the_sizes_of_their_tensors(case):
    module = resize(Network(case.model(), case.inputs()), 0.5)
    for layer in module.modules():
        weight = getattr(layer, "weight", None)
        match layer:
            case nn.Linear():
                assert weight.shape == (layer.out_features, layer.in_features)
            case nn.modules.conv._ConvTransposeNd():
                assert weight.shape[:2] == (layer.in_channels, layer.out_channels // layer.groups)
            case nn.modules.conv._ConvNd():
                assert weight.shape[:2] == (layer.out_channels, layer.in_channels // layer.groups)
            case nn.LayerNorm():
                assert weight.shape == layer.normalized_shape
            case nn.Embedding() | nn.EmbeddingBag():
                assert weight.shape == (layer.num_embeddings, layer.embedding_dim)
            case nn.RNNBase():
                assert layer.weight_hh_l0.shape[1] == layer.hidden_size
            case nn.MultiheadAttention():
                assert layer.head_dim * layer.num_heads == layer.embed_dim == layer.out_proj.weight.shape[0]


def test_following_one_s_own_tensors_changes_nothing():
    for case in CASES:
        module = case.model()
        before = described(module)
        follow_tensors(module)
        assert described(module) == before


def test_a_norm_without_weights_follows_what_it_reads():
    layers = [nn.Conv2d(2, 8, 3, padding=1), nn.InstanceNorm2d(8), nn.BatchNorm2d(8, affine=False)]
    layers += [nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8, affine=False)]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(8, elementwise_affine=False), nn.Linear(8, 3)]
    module = resize(Network(nn.Sequential(*layers, *end), torch.randn(2, 2, 8, 8)), 0.5)
    assert (module[1].num_features, module[2].num_features) == (4, 4)
    assert (module[4].num_channels, module[7].normalized_shape) == (4, (4,))


@pytest.mark.parametrize("affine", [True, False])
def test_a_group_norm_of_single_channels_stays_one(affine):
    norm = nn.GroupNorm(8, 8, affine=affine)
    model = nn.Sequential(nn.Conv2d(2, 8, 3), norm, nn.Conv2d(8, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module = resize(Network(model, torch.randn(2, 2, 8, 8)), 0.5)
    assert (module[1].num_groups, module[1].num_channels) == (4, 4)


class Heads(nn.Module):
    """Attention by hand; `size`, `scale` and the shape follow from the width, `depth` does not."""

    def __init__(self, width=16, heads=2):
        super().__init__()
        self.size, self.heads, self.depth = width // heads, heads, 16
        self.scale = self.size**-0.5
        self.embed, self.qkv, self.head = (
            nn.Linear(6, width),
            nn.Linear(width, 3 * width),
            nn.Linear(width, 3),
        )

    def forward(self, x):
        batch, tokens, _ = x.shape
        x = self.qkv(self.embed(x)).reshape(batch, tokens, 3, self.heads, self.size)
        query, key, value = x.permute(2, 0, 3, 1, 4).unbind(0)
        for _ in range(self.depth // 8):
            value = (query @ key.transpose(-1, -2) * self.scale).softmax(-1) @ value
        return self.head(value.transpose(1, 2).flatten(2).mean(1))


def test_foreign_numbers_follow_and_those_that_must_not_are_found_out():
    module = resize(Network(Heads(), torch.randn(2, 5, 6)), 0.5)
    assert (module.size, module.heads, module.depth) == (4, 2, 16)
    assert module.scale == pytest.approx(0.5)


def test_candidates_are_sizes_that_the_module_sees():
    network = Network(Heads(), torch.randn(2, 5, 6))
    widths = read_widths(network)
    seen = sizes_seen(widths, widths.sizes(0.5))
    assert seen[""][16] == {8}
    found, doubtful = candidates(network.module, seen)
    assert {name for _, name in found} == {"size", "scale", "depth"}
    assert doubtful == set()


def test_a_config_follows_where_the_code_reads_it():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_attention_heads": [1, 2], "strides": [4, 2]}
    lists = {"num_encoder_blocks": 2, "sr_ratios": [2, 1], "patch_sizes": [7, 3], "mlp_ratios": [2, 2]}
    config = transformers.SegformerConfig(**sizes, **lists, decoder_hidden_size=12)
    model = transformers.SegformerForImageClassification(config)
    module = resize(Network(model, {"pixel_values": torch.randn(2, 3, 32, 32)}), 0.5)
    assert module.config.hidden_sizes == [4, 8]
    assert model.config.hidden_sizes == [8, 16]
