"""Norms of every kind are told from other layers."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from pluribus.mechanisms.network.norms import is_norm
from pluribus.mechanisms.network.sites import find_sites
from tests import zoo

NORMS = [
    *(nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.SyncBatchNorm(4), nn.InstanceNorm2d(4, affine=True)),
    *(nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.LocalResponseNorm(2)),
]
OTHERS = [nn.Linear(4, 4), nn.Conv2d(4, 4, 1), nn.PReLU(), nn.Embedding(4, 4), nn.LSTM(4, 4)]


def kind(layer):
    return type(layer).__name__


class FrozenBatchNorm2d(nn.Module):
    """As detection networks have it: no layer of torch's, but a norm by its name."""


class ResponseGRN(nn.Module):
    """Global response normalisation, by its name."""


class ResidualGRN(nn.Linear):
    """A gated residual network."""


class NormConv2d(nn.Conv2d):
    """A convolution that is normed."""


class NormalDraw(nn.PReLU):
    """Has the letters in another word."""


def normalises(layer):
    (site,) = find_sites(layer)
    return is_norm(site)


@pytest.mark.parametrize("layer", [*NORMS, FrozenBatchNorm2d(), ResponseGRN()], ids=kind)
def test_a_norm_is_one(layer):
    assert normalises(layer)


@pytest.mark.parametrize(
    "layer",
    [*OTHERS, NormConv2d(4, 4, 1), ResidualGRN(4, 4), NormalDraw()],
    ids=kind,
)
def test_a_layer_of_weights_is_none(layer):
    assert not normalises(layer)


def test_a_norm_may_be_called_a_kind_of_norm():
    class LayerNormWithGate(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, 4, 1, 1))

    assert normalises(LayerNormWithGate())


def test_a_layer_with_a_normed_weight_is_no_norm():
    assert not normalises(parametrizations.weight_norm(nn.Linear(4, 4)))
    assert not normalises(parametrizations.spectral_norm(nn.Linear(4, 4)))


def test_the_norms_of_other_libraries_are_found():
    found = {site.kind for site in find_sites(zoo.hf_convnext()) if is_norm(site)}
    assert found == {"ConvNextLayerNorm", "LayerNorm"}
