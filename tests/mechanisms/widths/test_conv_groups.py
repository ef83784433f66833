"""Grouping: how many groups a convolution gets, and the counts of the Packed-Ensembles paper."""

from fnmatch import fnmatch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from pluribus.backbones import resnet18, resnet50, wide_resnet
from pluribus.mechanisms.graph.cost import cost
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.widths.conv_groups import inner_convolutions, multiples, reduced, regroup
from pluribus.mechanisms.widths.groups import read_widths
from pluribus.mechanisms.widths.resize import resize


@settings(deadline=None)
@given(st.integers(1, 8), st.integers(1, 300), st.integers(1, 300), st.integers(1, 64))
def test_groups_divide_both_widths_and_keep_their_inputs(gamma, inputs, outputs, least):
    groups = reduced(gamma, inputs, outputs, least)
    allowed = [g for g in range(2, gamma + 1) if inputs % g == outputs % g == 0 and inputs / g >= least]
    assert groups == max(allowed, default=1)


def packed(model, shape, alpha, gamma, ungrouped=""):
    """Parameters and multiply-adds of four members of alpha / 4 times the width."""
    network = Network(model, torch.randn(2, *shape))
    widths, factor = read_widths(network), alpha / 4
    names = [name for name, *_ in inner_convolutions(widths)]
    gammas = {name: 1 if fnmatch(name, ungrouped) else gamma for name in names}
    module = resize(network, factor, multiples(widths, factor, gammas, 64), widths)
    regroup(module, names, gammas, 64)
    single = cost(module.eval(), torch.zeros(1, *shape))
    return 4 * single.parameters, round(4 * single.multiply_adds / 1e9, 3)


CIFAR, IMAGENET, FIRST = (3, 32, 32), (3, 224, 224), "layer*.conv1"


def without_block_biases(model):
    """Biases in the first convolution and the shortcuts alone, as the paper's packed networks have them."""
    for name, layer in model.named_modules():
        if fnmatch(name, "layer*.conv?"):
            layer.bias = None
    return model


def large(name, *case):
    """A case that takes long: the networks of the paper in full size."""
    return pytest.param(*case, id=name, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("build", "shape", "setting", "expected"),
    [
        pytest.param(resnet18, CIFAR, (2, 2, FIRST), (8_175_784, 0.481), id="r18"),
        large("r18 C100", lambda: resnet18(classes=100), CIFAR, (2, 2, FIRST), (8_268_304, 0.481)),
        large("r50", resnet50, CIFAR, (2, 2, FIRST), (14_552_232, 1.004)),
        large("r50 gamma 1", resnet50, CIFAR, (2, 1), (23_596_200, 1.3)),
        large("wrn", lambda: without_block_biases(wide_resnet(28, 10)), CIFAR, (2, 2), (19_354_280, 4.058)),
        large("wrn with all biases", wide_resnet, CIFAR, (2, 2), (19_372_200, 4.058)),
        large(
            "wrn C100",
            lambda: without_block_biases(wide_resnet(28, 10, classes=100)),
            CIFAR,
            (2, 1),
            (36_621_840, 5.952),
        ),
        large(
            "r50 ImageNet",
            lambda: resnet50(1000, stem="imagenet"),
            IMAGENET,
            (3, 1),
            (59_087_968, 9.291),
        ),
    ],
)
def test_packed_networks_have_the_counts_of_the_paper(build, shape, setting, expected):
    assert packed(build(), shape, *setting) == expected


def stack(*layers):
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def test_only_convolutions_between_inner_widths_are_grouped():
    depthwise, grouped = nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 1, groups=2)
    model = stack(nn.Conv2d(2, 8, 3), nn.Conv2d(8, 8, 1), depthwise, grouped, nn.Conv2d(8, 3, 1))
    network = Network(model, torch.randn(2, 2, 8, 8))
    assert [name for name, *_ in inner_convolutions(read_widths(network))] == ["1", "3"]
    module = resize(network, 1.0)
    assert regroup(module, ["1", "3"], {"1": 2, "3": 2}, 1) == {"1": 2, "3": 2}
    assert [module[i].groups for i in range(5)] == [1, 2, 8, 4, 1]
    assert module[3].weight.shape == (8, 2, 1, 1)
    assert module(torch.randn(2, 2, 8, 8)).shape == (2, 3)


def test_widths_are_rounded_up_where_groups_are_possible():
    model = stack(nn.Conv2d(2, 10, 1), nn.Conv2d(10, 6, 1), nn.Conv2d(6, 3, 1))
    widths = read_widths(Network(model, torch.randn(2, 2, 8, 8)))
    assert list(multiples(widths, 0.5, {"1": 2}, 3).values()) == [2, 2]
    assert list(multiples(widths, 0.5, {"1": 2}, 4).values()) == [1, 1]
    assert list(widths.sizes(0.5, multiples(widths, 0.5, {"1": 2}, 3)).values()) == [6, 4]
