"""Folding: a layer with folded weights computes what layer and norm compute."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.folding import Norm, fold_norm

LAYERS = {
    "linear": (lambda bias: nn.Linear(3, 5, bias=bias), nn.BatchNorm1d, (7, 3)),
    "conv1d": (lambda bias: nn.Conv1d(3, 5, 2, bias=bias), nn.BatchNorm1d, (7, 3, 6)),
    "conv2d": (lambda bias: nn.Conv2d(6, 4, 3, bias=bias, groups=2), nn.BatchNorm2d, (2, 6, 5, 5)),
    "conv3d": (lambda bias: nn.Conv3d(2, 4, 2, bias=bias), nn.BatchNorm3d, (2, 2, 3, 3, 3)),
}


def perturbed(norm):
    """The norm with numbers of its own in every tensor."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in (*norm.parameters(), norm.running_mean):
            tensor.copy_(torch.randn(tensor.shape, generator=generator))
        norm.running_var.copy_(0.5 + torch.rand(norm.running_var.shape, generator=generator))
    return norm.eval()


def numbers(norm):
    return Norm(norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
@torch.no_grad()
def test_folded_layer_matches_layer_and_norm(kind, bias, affine):
    make, norm_of, shape = LAYERS[kind]
    layer = make(bias).double()
    norm = perturbed(norm_of(layer.weight.shape[0], affine=affine).double())
    folded = make(True).double()
    weight, shift = fold_norm(layer.weight, layer.bias, numbers(norm))
    folded.weight.copy_(weight)
    folded.bias.copy_(shift)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert_close(folded(x), norm(layer(x)))


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_folded_layer_keeps_its_precision(bias):
    layer, norm = nn.Linear(3, 5, bias=bias), perturbed(nn.BatchNorm1d(5).double())
    assert [tensor.dtype for tensor in fold_norm(layer.weight, layer.bias, numbers(norm))] == [
        torch.float32
    ] * 2
