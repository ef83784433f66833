"""Vision transformer: patches, attention, blocks, the class token."""

import math

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from pluribus.backbones import vit
from pluribus.backbones.vit import Attention, Patches
from pluribus.errors import InputError


def small(**settings):
    """A network of 4 patches of 4x4 pixels, in eval mode."""
    torch.manual_seed(0)
    return vit(image_size=8, width=8, heads=2, mlp=16, **settings).eval()


def test_patches_are_those_of_unfold():
    x = torch.randn(2, 3, 12, 12)
    assert_close(Patches(12, 4)(x), F.unfold(x, 4, stride=4).transpose(1, 2))


def test_attention_is_softmax_of_scaled_products_in_each_head():
    attention, x = Attention(width=6, heads=2), torch.randn(2, 5, 6)
    heads = []
    for part in (slice(0, 3), slice(3, 6)):
        query, key, value = (f(x)[..., part] for f in (attention.query, attention.key, attention.value))
        heads.append(torch.softmax(query @ key.mT / math.sqrt(3), dim=-1) @ value)
    assert_close(attention(x), attention.output(torch.cat(heads, dim=-1)))


def test_block_adds_attention_then_perceptron():
    block, x = small(depth=1).blocks[0], torch.randn(2, 5, 8)
    middle = x + block.attention.attention(block.attention.norm(x))
    out = block.mlp.linear2(F.gelu(block.mlp.linear1(block.mlp.norm(middle))))
    assert_close(block(x), middle + out)


def test_logits_are_read_from_the_class_token():
    network, x = small(depth=2), torch.randn(2, 3, 8, 8)
    tokens = torch.cat([network.class_token.expand(2, 1, 8), network.embedding(x)], dim=1)
    tokens = network.blocks[1](network.blocks[0](tokens + network.positions))
    assert_close(network(x), network.head(network.norm(tokens[:, 0])))


def test_tokens_and_positions_start_as_standard_normal_numbers():
    torch.manual_seed(0)
    positions = vit().positions.detach()
    assert positions.shape == (1, 65, 128)
    assert_close(
        torch.stack([positions.mean(), positions.std()]), torch.tensor([0.0, 1.0]), atol=0.05, rtol=0
    )


def test_images_of_another_size_are_refused():
    with pytest.raises(InputError, match=r"\[batch, channels, 8, 8\], got shape \(2, 3, 16, 16\)"):
        small(depth=1)(torch.zeros(2, 3, 16, 16))
