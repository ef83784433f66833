"""Residual networks: torchvision's names, stems, blocks, widths."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.backbones import resnet18, resnet34, resnet50, resnet101

LAYOUTS = [(resnet18, 2, (2, 2, 2, 2)), (resnet34, 2, (3, 4, 6, 3))]
LAYOUTS += [(resnet50, 3, (3, 4, 6, 3)), (resnet101, 3, (3, 4, 23, 3))]


def torchvision_names(convolutions, counts):
    """The keys of torchvision's state dict, in its order, for blocks of so many convolutions."""
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")

    def pair(conv, bn):
        return [f"{conv}.weight", *(f"{bn}.{part}" for part in norm)]

    names = pair("conv1", "bn1")
    for stage, count in enumerate(counts, start=1):
        for block in range(count):
            at = f"layer{stage}.{block}"
            for number in range(1, convolutions + 1):
                names += pair(f"{at}.conv{number}", f"{at}.bn{number}")
            if block == 0 and (stage > 1 or convolutions == 3):
                names += pair(f"{at}.downsample.0", f"{at}.downsample.1")
    return [*names, "fc.weight", "fc.bias"]


@pytest.mark.parametrize(("builder", "convolutions", "counts"), LAYOUTS)
@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_weights_are_named_as_in_torchvision(builder, convolutions, counts, stem):
    with torch.device("meta"):
        network = builder(stem=stem)
    assert list(network.state_dict()) == torchvision_names(convolutions, counts)


def test_stages_are_named_as_in_torchvision():
    names = [name for name, _ in resnet18(width=2).named_children() if name != "flatten"]
    stages = ["layer1", "layer2", "layer3", "layer4"]
    assert names == ["conv1", "bn1", "relu", "maxpool", *stages, "avgpool", "fc"]


def test_resnet18_has_20_norms_of_4800_channels():
    norms = [module for module in resnet18().modules() if isinstance(module, nn.BatchNorm2d)]
    assert (len(norms), sum(norm.num_features for norm in norms)) == (20, 4800)


@pytest.mark.parametrize(("stem", "side"), [("cifar", 64), ("imagenet", 16)])
def test_stem_decides_the_size_of_the_first_stage(stem, side):
    network = resnet18(stem=stem, width=2)
    features = network.maxpool(network.bn1(network.conv1(torch.zeros(1, 3, 64, 64))))
    assert features.shape == (1, 2, side, side)


def test_width_scales_all_channels():
    wide, narrow = resnet50(width=8).state_dict(), resnet50(width=4).state_dict()
    for name, weight in narrow.items():
        if weight.ndim == 4:
            inputs = 1 if name == "conv1.weight" else 2
            assert wide[name].shape == (2 * weight.shape[0], inputs * weight.shape[1], *weight.shape[2:])


def test_basic_block_follows_its_equation():
    block, x = resnet18(width=4).layer2[0].eval(), torch.randn(2, 4, 8, 8)
    out = block.bn2(block.conv2(block.bn1(block.conv1(x)).relu()))
    assert_close(block(x), (out + block.downsample(x)).relu())


def test_bottleneck_follows_its_equation_with_the_stride_in_the_middle():
    block, x = resnet50(width=4).layer2[0].eval(), torch.randn(2, 16, 8, 8)
    out = block.bn2(block.conv2(block.bn1(block.conv1(x)).relu())).relu()
    assert_close(block(x), (block.bn3(block.conv3(out)) + block.downsample(x)).relu())
    assert [block.conv1.stride[0], block.conv2.stride[0], block.conv3.stride[0]] == [1, 2, 1]
