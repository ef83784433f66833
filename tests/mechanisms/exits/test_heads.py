"""Heads: predictions from images, tokens and vectors."""

import copy

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from pluribus.errors import ConversionError
from pluribus.mechanisms.exits.exit_points import Exit, ExitPoints
from pluribus.mechanisms.exits.heads import Head, keep_rows


def points(output, width=5, axis=-1):
    return ExitPoints((), (), "last", width, output, axis)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_an_image_is_averaged_after_a_convolution_of_one_pixel():
    head, x = Head(Exit("e", (4, 6, 6), 1), points((3,)), 2).eval(), torch.randn(7, 4, 6, 6)
    conv = head.features[0]
    mixed = torch.einsum("bchw,oc->bohw", x, conv.weight[:, :, 0, 0]) + conv.bias[:, None, None]
    pooled = (mixed / (1 + 1e-5) ** 0.5).relu().mean((2, 3))
    assert_close(head(x), F.linear(pooled, head.last.weight, head.last.bias).view(7, 2, 3))
    assert count(head) == (4 * 5 + 5) + 2 * 5 + (5 + 1) * 2 * 3


def test_tokens_are_averaged_after_a_linear_layer():
    head, x = Head(Exit("e", (6, 4), -1), points((3,)), 2), torch.randn(7, 6, 4)
    normed = F.layer_norm(F.gelu(head.features[0](x)), (4,))
    assert_close(head(x), head.last(normed.mean(1)).view(7, 2, 3))
    assert count(head) == (4 + 1) * 4 + 2 * 4 + (4 + 1) * 2 * 3


def test_a_vector_keeps_its_width():
    head, x = Head(Exit("e", (4,), -1), points((3,)), 2).eval(), torch.randn(7, 4)
    hidden = (head.features[0](x) / (1 + 1e-5) ** 0.5).relu()
    assert_close(head(x), head.last(hidden).view(7, 2, 3))


@pytest.mark.parametrize("shape", [(4,), (4, 1, 1)])
def test_one_number_for_each_channel_is_normalised_by_running_statistics(shape):
    head, x = Head(Exit("e", shape, 1 if shape[1:] else -1), points((3,)), 2), torch.randn(1, *shape)
    head(torch.randn(7, *shape))
    before = copy.deepcopy(head.state_dict())
    made = head(x)
    made.sum().backward()
    assert all(parameter.grad is not None for parameter in head.parameters())
    assert_close(made, head.eval()(x))
    assert_close(head.state_dict(), before, rtol=0, atol=0)


def test_one_number_for_each_sample_has_no_axis_of_its_own():
    head = Head(Exit("e", (4,), -1), points(()), 2)
    assert head(torch.randn(7, 4)).shape == (7, 2)


def test_a_prediction_for_every_token_is_not_averaged():
    x = torch.randn(7, 6, 4)
    head = Head(Exit("e", (6, 4), -1), points((6, 3)), 2)
    assert_close(head(x)[:, 1], head.last(head.features(x))[..., 3:])
    turned = Head(Exit("e", (6, 4), -1), points((3, 6), axis=1), 2)
    assert_close(turned(x)[:, 1], turned.last(turned.features(x))[..., 3:].transpose(1, 2))


def test_a_prediction_for_every_pixel_is_enlarged():
    head, x = Head(Exit("e", (4, 6, 6), 1), points((3, 12, 12), axis=1), 2), torch.randn(7, 4, 6, 6)
    small = head.last(head.features(x))[:, 3:]
    large = F.interpolate(small, size=(12, 12), mode="bilinear", align_corners=False)
    assert_close(head(x)[:, 1], large)
    assert head(torch.randn(7, 4, 9, 6)).shape == (7, 2, 3, 18, 12)  # an image of another size


def test_a_prediction_for_every_pixel_follows_the_size_of_the_image():
    head, x = Head(Exit("e", (4, 6, 6), 1), points((3, 6, 6), axis=1), 2), torch.randn(7, 4, 8, 5)
    assert_close(head(x)[:, 1], head.last(head.features(x))[:, 3:])


def test_a_value_that_fits_no_prediction_is_refused_by_name():
    with pytest.raises(ConversionError, match=r"got the output of middle, \[6, 4\] with features on axis -1"):
        Head(Exit("middle", (6, 4), -1), points((3, 12, 12), axis=1), 2)


def test_kept_rows_are_those_of_their_slots():
    head, x = Head(Exit("e", (4,), -1), points((3,)), 3).eval(), torch.randn(7, 4)
    expected = head(x)[:, [2, 0]]
    keep_rows(head.last, [2, 0], 3)
    assert_close(head(x), expected)
    assert head.last.out_features == 6
