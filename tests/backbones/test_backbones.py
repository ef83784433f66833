"""All backbones: counts of the papers, outputs, gradients, export, refusals."""

import pytest
import torch
from torch.export import Dim, export
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

from pluribus.backbones import (
    BACKBONES,
    cnn,
    mlp,
    pyramidnet,
    residual_mlp,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    vgg,
    vit,
    wide_resnet,
)
from pluribus.errors import SettingError

SMALL = {
    "mlp": ({"inputs": 6, "outputs": 4, "hidden": (8, 5), "batch_norm": True, "dropout": 0.2}, (6,)),
    "residual_mlp": ({"inputs": 16, "outputs": 4, "width": 8, "depth": 3}, (1, 4, 4)),
    "cnn": ({"classes": 4, "width": 4}, (1, 8, 8)),
    "vgg": ({"classes": 4, "planes": (4, 8), "layers": (1, 2), "pooling": (1, 0)}, (3, 8, 8)),
    "resnet18": ({"classes": 4, "width": 4}, (3, 16, 16)),
    "resnet34": ({"classes": 4, "width": 4, "stem": "imagenet"}, (3, 64, 64)),
    "resnet50": ({"classes": 4, "width": 4, "in_channels": 1}, (1, 16, 16)),
    "resnet101": ({"classes": 4, "width": 4}, (3, 16, 16)),
    "wide_resnet": ({"depth": 10, "widen": 1, "classes": 4, "dropout": 0.3}, (3, 16, 16)),
    "pyramidnet": ({"depth": 14, "alpha": 10, "classes": 4}, (3, 16, 16)),
    "vit": ({"classes": 4, "image_size": 8, "width": 8, "depth": 2, "heads": 2, "mlp": 16}, (3, 8, 8)),
}

COUNTS = [
    (mlp, {"inputs": 10, "outputs": 1, "hidden": (50, 50)}, 10 * 50 + 50 + 50 * 50 + 50 + 50 + 1),
    (residual_mlp, {"inputs": 784, "outputs": 2}, 785 * 128 + 5 * (129 * 128 + 2 * 128) + 129 * 2),
    (cnn, {}, 9 * 16 + 32 + 9 * 16 * 32 + 64 + 9 * 32 * 64 + 128 + 65 * 10),
    (vgg, {}, 9 * (48 + 512 + 2048 + 4096 + 8192 + 3 * 16384) + 2 * (16 + 32 + 128 + 512) + 129 * 10),
    (resnet18, {"classes": 10}, 11_173_962),
    (resnet18, {"classes": 100}, 11_220_132),
    (resnet18, {"classes": 1000, "stem": "imagenet"}, 11_689_512),
    (resnet34, {"classes": 1000, "stem": "imagenet"}, 21_797_672),
    (resnet50, {"classes": 10}, 23_520_842),
    (resnet50, {"classes": 100}, 23_705_252),
    (resnet50, {"classes": 1000, "stem": "imagenet"}, 25_557_032),
    (resnet50, {"classes": 1000, "stem": "imagenet", "width": 256}, 383_571_176),
    # A member of Packed-Ensembles with four of them and alpha 2; their Table 10 has 392.0 million for all.
    (resnet50, {"classes": 1000, "stem": "imagenet", "width": 128}, 392_016_288 // 4),
    (resnet101, {"classes": 1000, "stem": "imagenet"}, 44_549_160),
    (wide_resnet, {"depth": 28, "widen": 10, "classes": 10}, 36_489_290),
    (wide_resnet, {"depth": 28, "widen": 10, "classes": 100}, 36_546_980),
    (pyramidnet, {"depth": 110, "alpha": 270, "classes": 100}, 28_511_307),
]

MULTIPLY_ADDS = [  # in units of 1e9, as Tables 1 and 10 of the Packed-Ensembles paper print them
    (resnet18, {}, 32, 0.56),
    (resnet50, {}, 32, 1.30),
    (wide_resnet, {"depth": 28, "widen": 10}, 32, 5.95),
    (resnet50, {"classes": 1000, "stem": "imagenet"}, 224, 4.09),
]

REFUSED = [
    (mlp, {"inputs": 0, "outputs": 1}, "inputs must be at least 1, got 0"),
    (mlp, {"inputs": 1, "outputs": 1, "hidden": 50}, "hidden must be a sequence of whole numbers, got 50"),
    (mlp, {"inputs": 1, "outputs": 1, "hidden": (5, 0)}, r"hidden\[1\] must be .*, got 0"),
    (mlp, {"inputs": 1, "outputs": 1, "activation": "step"}, "activation must be one of 'relu', 'gelu'"),
    (mlp, {"inputs": 1, "outputs": 1, "dropout": 1.0}, "dropout must be below 1"),
    (residual_mlp, {"inputs": 1, "outputs": 1, "depth": 0}, "depth must be at least 1"),
    (cnn, {"width": 2.5}, "width must be a whole number, got 2.5"),
    (vgg, {"planes": ()}, r"planes must be one number per stage, at least one, got \(\)"),
    (vgg, {"layers": (1, 1)}, r"layers must be as long as planes, 5 stages, got \(1, 1\)"),
    (vgg, {"pooling": 1}, "pooling must be as long as planes, 5 stages, got 1"),
    (vgg, {"pooling": (2, 0, 0, 0, 0)}, r"pooling\[0\] must be one of 0, 1"),
    (resnet18, {"stem": "mnist"}, "stem must be one of 'cifar', 'imagenet', got 'mnist'"),
    (resnet50, {"in_channels": 0}, "in_channels must be at least 1"),
    (wide_resnet, {"depth": 29}, "depth must be 4 and a multiple of 6, got 29"),
    (wide_resnet, {"depth": 4}, "depth must be at least 10, got 4"),
    (wide_resnet, {"dropout": -0.1}, "dropout must be at least 0"),
    (pyramidnet, {"depth": 111}, "depth must be 2 and a multiple of 6, got 111"),
    (pyramidnet, {"alpha": 0}, "alpha must be above 0, got 0"),
    (vit, {"image_size": 30}, "image_size must be a multiple of patch=4, got 30"),
    (vit, {"heads": 3}, "width must be a multiple of heads=3, got 128"),
]


def named(rows):
    """Rows as parameters, each with the builder's name and its arguments as its name."""
    return [pytest.param(*row, id=f"{row[0].__name__}-{row[1]}") for row in rows]


def build(name, batch):
    """A small network and a batch for it."""
    torch.manual_seed(0)
    settings, shape = SMALL[name]
    return BACKBONES[name](**settings), torch.randn(batch, *shape)


def test_every_backbone_has_a_small_case():
    assert list(SMALL) == list(BACKBONES)


@pytest.mark.parametrize(("builder", "settings", "count"), named(COUNTS))
def test_parameters_are_as_counted_in_the_papers(builder, settings, count):
    with torch.device("meta"):
        network = builder(**settings)
    assert sum(parameter.numel() for parameter in network.parameters()) == count


@pytest.mark.parametrize(("builder", "settings", "size", "billions"), named(MULTIPLY_ADDS))
def test_multiply_adds_are_as_counted_in_the_papers(builder, settings, size, billions):
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        builder(**settings).eval()(torch.zeros(1, 3, size, size))
    assert round(counter.get_total_flops() / 2e9, 2) == billions


@pytest.mark.parametrize("name", SMALL)
def test_samples_do_not_mix_in_eval_mode(name):
    network, x = build(name, batch=3)
    rows = torch.cat([network.eval()(row[None]) for row in x])
    assert rows.shape == (3, 4)
    assert_close(network(x), rows, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_gets_a_gradient(name):
    network, x = build(name, batch=8)
    network(x).square().sum().backward()
    assert [key for key, value in network.named_parameters() if value.grad is None] == []


# A resnet101 has the blocks of a resnet50, only more of them, and a resnet34 those of a resnet18.
DEEP = ("resnet34", "resnet101")


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in DEEP)) for name in SMALL]
)
@pytest.mark.sampled(3)
def test_exported_graph_computes_the_same_for_any_batch(name, training):
    network, x = build(name, batch=5)
    network.train(training)
    graph = export(network, (x[:3],), dynamic_shapes=({0: Dim.DYNAMIC},), strict=False).module()
    torch.manual_seed(1)
    expected = network(x)
    torch.manual_seed(1)
    assert_close(graph(x), expected)


@pytest.mark.parametrize(("builder", "settings", "message"), named(REFUSED))
def test_impossible_settings_are_refused_by_name(builder, settings, message):
    with pytest.raises(SettingError, match=message):
        builder(**settings)
