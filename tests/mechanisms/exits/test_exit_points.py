"""Exit points: exits, first and last layer of networks of many kinds."""

import pytest
import torch
from torch import nn

from pluribus.backbones import resnet18, vgg, vit, wide_resnet
from pluribus.backbones.mlp import mlp, residual_mlp
from pluribus.errors import ConversionError
from pluribus.mechanisms.exits.exit_points import check_inputs, find_exit_points
from pluribus.mechanisms.network.network import Network
from tests import zoo
from tests.cases import case_named


def image(channels=1, side=16):
    return torch.zeros(2, channels, side, side)


def flat_vgg():
    """Two convolutions and a pooling, twice, and a classifier of two layers, in one sequence."""

    def stage(before, after):
        convs = [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1)]
        return [*convs, nn.ReLU(), nn.MaxPool2d(2)]

    head = [nn.Flatten(), nn.Linear(4 * 4 * 4, 5), nn.ReLU(), nn.Linear(5, 3)]
    return nn.Sequential(*stage(1, 3), *stage(3, 4), *head)


def strided():
    convs = [nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Conv1d(4, 4, 3, padding=1), nn.ReLU()]
    more = [nn.Conv1d(4, 6, 3, stride=2, padding=1), nn.ReLU(), nn.Conv1d(6, 6, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*convs, *more, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(6, 3))


NETWORKS = {
    "vgg": (
        lambda: vgg(3, 1, (2, 2, 2, 2, 2)),
        image(),
        ["layer1", "layer2", "layer3", "layer4"],
    ),
    "wide_resnet": (lambda: wide_resnet(10, 1, 3, 1), image(), ["layer1", "layer2"]),
    "vit": (lambda: vit(3, 1, 8, 4, 8, 3, 2, 8), image(side=8), ["blocks.0", "blocks.1"]),
    "mlp": (lambda: mlp(4, 2, (5, 5, 5)), torch.zeros(2, 4), ["hidden.0", "hidden.1"]),
    "short_mlp": (lambda: mlp(4, 2, (5, 5)), torch.zeros(2, 4), ["hidden.0"]),
    "residual_mlp": (lambda: residual_mlp(4, 2, 5, 3), torch.zeros(2, 4), ["blocks.0", "blocks.1"]),
    "chain": (zoo.mlp, torch.zeros(2, 6), ["1"]),
    "flat_vgg": (flat_vgg, image(), ["4", "9"]),
    "strided": (strided, torch.zeros(2, 2, 16), ["3"]),
    "encoder": (lambda: zoo.transformer(depth=2), torch.zeros(2, 5, 4), ["1.layers.0"]),
    "two_inputs": (zoo.TwoInputs, (torch.zeros(2, 6), torch.zeros(2, 4)), []),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_exits_are_the_ends_of_blocks_stages_or_layers(name):
    build, example, exits = NETWORKS[name]
    assert [exit.name for exit in find_exit_points(Network(build().eval(), example)).exits] == exits


@pytest.mark.parametrize(
    ("name", "first", "exits", "last"),
    [
        ("hf_vit", "vit.embeddings.patch_embeddings.projection", "layers.0", "classifier"),
        pytest.param(
            "hf_resnet",
            "resnet.embedder.embedder.convolution",
            "resnet.encoder.stages.0",
            "classifier.1",
            marks=pytest.mark.slow,
        ),
        ("hf_convnext", "convnext.embeddings.patch_embeddings", "convnext.encoder.stages.0", "classifier"),
        ("hf_bert", "bert.embeddings.word_embeddings", "bert.encoder.layer.0", "classifier"),
        pytest.param(
            "monai_densenet",
            "features.conv0",
            "features.denseblock1",
            "class_layers.out",
            marks=pytest.mark.slow,
        ),
        pytest.param("lstm", "0", None, "2", marks=pytest.mark.slow),
    ],
)
def test_networks_of_other_libraries_have_their_own_names(name, first, exits, last):
    case = case_named(name)
    points = find_exit_points(Network(case.model(), case.inputs()))
    assert (points.first, points.last) == ((first,), last)
    assert [exit.name.endswith(exits) for exit in points.exits] == ([] if exits is None else [True])


def test_shape_axis_and_width_are_those_of_the_values():
    points = find_exit_points(Network(resnet18(3, 1, width=2), image()))
    exits = [(exit.name, exit.shape, exit.axis) for exit in points.exits]
    assert exits == [("layer1", (2, 16, 16), 1), ("layer2", (4, 8, 8), 1), ("layer3", (8, 4, 4), 1)]
    assert (points.width, points.output, points.axis, points.depths) == (16, (3,), -1, 4)
    dense = find_exit_points(Network(zoo.transposed_conv(), torch.zeros(2, 2, 8, 8)))
    assert (dense.last, dense.output, dense.axis) == ("6", (3, 8, 8), 1)


def test_patterns_pick_the_modules_to_exit_after():
    network = Network(vit(3, 1, 8, 4, 8, 3, 2, 8).eval(), image(side=8))
    assert [exit.name for exit in find_exit_points(network, ("blocks.?",)).exits] == [
        "blocks.0",
        "blocks.1",
        "blocks.2",
    ]
    assert [exit.name for exit in find_exit_points(network, ("blocks.1", "embedding")).exits] == [
        "embedding",
        "blocks.1",
    ]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("3.0", "3.0: a skip connection from 2 to 3 passes by"),
        ("7", "7: it is the network's own output"),
        ("nowhere", "'nowhere', which names none. It can exit after 0, 1, 2"),
    ],
)
def test_a_module_that_data_passes_by_is_refused_with_what_does(where, reason):
    with pytest.raises(ConversionError, match=reason):
        find_exit_points(Network(zoo.residual_cnn().eval(), image(2, 8)), (where,))


def test_several_inputs_are_refused_where_one_is_not():
    points = find_exit_points(Network(zoo.grouped_cnn(), image(4, 8)))
    check_inputs(points, 1)
    with pytest.raises(ConversionError, match=r"0 \(Conv2d\) has groups=2.*inputs=1"):
        check_inputs(points, 2)
