"""Masking: tensors that may have a mask, and masks that are multiplied onto them."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.masks.places import Masked, find_places, put_masks
from pluribus.mechanisms.network.layers import find_sites
from pluribus.mechanisms.network.network import Network
from pluribus.methods import Masksembles
from tests.zoo import Apply


def places_of(model, example):
    network = Network(model, example)
    return network, find_places(network, [site for site in find_sites(network.module) if site.parameters])


@pytest.mark.parametrize(
    ("shape", "channels", "samples"), [((4, 6), -1, 0), ((5, 4, 6), -1, 1), ((4, 6, 3, 3), -3, 0)]
)
def test_masks_lie_on_channels_of_one_member_or_of_each_sample(shape, channels, samples):
    layer, x = nn.Identity(), torch.randn(shape)
    masked = Masked({0: channels}, {0: samples})
    masks = (torch.rand(4, 6) > 0.5).float()
    layer.mask_0 = masks[0]
    one = masks[0].view([6 if axis == len(shape) + channels else 1 for axis in range(len(shape))])
    assert_close(masked(layer, 0, x), x * one)
    layer.mask_0 = masks
    for sample in range(4):
        alone = masks[sample].view(one.shape)
        came, given = masked(layer, 0, x).select(samples, sample), (x * alone).select(samples, sample)
        assert_close(came, given)
    assert masked(layer, 1, x) is x  # an input without a mask


def test_places_are_hidden_tensors_in_the_order_of_reading():
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.Flatten(), nn.Linear(128, 3))
    _, places = places_of(model, torch.zeros(2, 2, 8, 8))
    assert [(place.axis, place.channels) for place in places] == [(-3, 6), (-1, 128)]


def test_a_depthwise_convolution_has_no_mask():
    model = nn.Sequential(nn.Conv2d(2, 6, 1), nn.Conv2d(6, 6, 3, groups=6), nn.Conv2d(6, 3, 1))
    _, places = places_of(model, torch.zeros(2, 2, 8, 8))
    assert [place.reads[0].site.name for place in places] == ["2"]


def test_layers_that_read_one_tensor_hold_one_buffer():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.left, self.right = nn.Linear(3, 6), nn.Linear(6, 2), nn.Linear(6, 2)

        def forward(self, x):
            x = self.first(x)
            return self.left(x) + self.right(x)

    network, (place,) = places_of(Two(), torch.zeros(4, 3))
    masks = torch.eye(6)[:2]
    names = put_masks(network, [place], [masks])
    assert network.module.left.mask_0 is network.module.right.mask_0
    (named,) = names.values()
    assert_close(named, masks)
    x, module = torch.randn(4, 3), network.module
    hidden = module.first(x) * masks[0]
    expected = sum(nn.functional.linear(hidden, one.weight, one.bias) for one in (module.left, module.right))
    assert_close(module(x), expected)


def test_members_take_turns_where_samples_have_no_axis_of_their_own():
    cut, paste = (Apply(lambda x, size=size: x.view(-1, size)) for size in (3, 8))
    network = nn.Sequential(cut, nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 4), paste, nn.Linear(8, 3)).double()
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3  # two windows of each sample
    ensemble = pl.convert(network, Masksembles(members=2), example=x)
    assert not ensemble.members.tensors.mixes
    assert "in training members run one after the other" in str(ensemble.conversion)
    assert_close(ensemble.train()(x), ensemble.eval()(x))
    ensemble.train().loss(x, y).backward()
