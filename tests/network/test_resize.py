"""Resize: every case of the zoo at half its width, or refused; slices compute the same numbers."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus import backbones
from pluribus.errors import ConversionError, InputError
from pluribus.network import Network
from pluribus.network.initialise import reinitialise
from pluribus.network.resize import Zeroed, resize, slice_widths
from pluribus.network.widths import read_widths
from tests import zoo
from tests.cases import CASES, case_named, each, logits, run

REFUSED = {
    "mini_vit": r"the network itself \(.*zoo.py:\d+\) fails when resized: unflatten",
    "counted_batch": r"the network itself \(.*zoo.py:\d+\) fails when resized: shape '\[10, 2, 4\]'",
    "data_dependent": "cannot be read by torch.export",
}
RESIZED = [case for case in CASES if case.name not in REFUSED]
UNCHANGED = ("root_layer",)

IMAGE = (2, 3, 32, 32)
NETWORKS = {
    "mlp": (lambda: backbones.mlp(6, 3), (2, 6)),
    "residual_mlp": (lambda: backbones.residual_mlp(6, 3, width=32), (2, 6)),
    "cnn": (backbones.cnn, (2, 1, 8, 8)),
    "vgg": (backbones.vgg, IMAGE),
    "resnet18": (backbones.resnet18, IMAGE),
    "resnet50": (backbones.resnet50, IMAGE),
    "wide_resnet": (lambda: backbones.wide_resnet(10, 4), IMAGE),
    "pyramidnet": (lambda: backbones.pyramidnet(20, 30), IMAGE),
    "vit": (lambda: backbones.vit(depth=2), IMAGE),
}


def network_of(case):
    return Network(case.model(), case.inputs())


@pytest.mark.parametrize("factor", [0.5, 1.5])
@each(RESIZED)
def test_a_resized_network_runs_and_returns_the_same_shape(case, factor):
    network = network_of(case)
    module = resize(network, factor)
    counts = [sum(p.numel() for p in one.parameters()) for one in (network.module, module)]
    assert (counts[0] > counts[1]) == (factor < 1 and case.name not in UNCHANGED)
    assert (counts[0] < counts[1]) == (factor > 1 and case.name not in UNCHANGED)
    reinitialise(module, seed=0)
    for mode in (True, False):
        assert logits(run(module.train(mode), case.inputs())).shape == case.shape
    with torch.no_grad():  # attention of torch has a path of its own here
        assert_close(logits(run(module, case.inputs())), logits(run(copy.deepcopy(module), case.inputs())))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_resized_is_refused_by_name(name):
    with pytest.raises(ConversionError, match=REFUSED[name]):
        resize(network_of(case_named(name)), 0.5)


@pytest.mark.parametrize("name", NETWORKS)
def test_our_backbones_are_resized(name):
    build, shape = NETWORKS[name]
    model = build()
    network = Network(model, torch.randn(shape))
    module = resize(network, 0.5).eval()
    ratio = sum(p.numel() for p in module.parameters()) / sum(p.numel() for p in model.parameters())
    assert 0.2 < ratio < 0.35
    assert module(torch.randn(shape)).shape == model(torch.randn(shape)).shape


@pytest.mark.parametrize("name", ["mlp", "residual_mlp", "cnn", "resnet18"])
def test_a_resized_backbone_is_one_that_was_built_so(name):
    builders = {
        "mlp": lambda f: backbones.mlp(6, 3, hidden=(int(50 * f), int(50 * f))),
        "residual_mlp": lambda f: backbones.residual_mlp(6, 3, width=int(32 * f)),
        "cnn": lambda f: backbones.cnn(width=int(16 * f)),
        "resnet18": lambda f: backbones.resnet18(width=int(64 * f)),
    }
    shape = NETWORKS[name][1]
    module, expected = resize(Network(builders[name](1), torch.randn(shape)), 0.25), builders[name](0.25)
    assert str(module) == str(expected)
    assert {n: p.shape for n, p in module.state_dict().items()} == {
        n: p.shape for n, p in expected.state_dict().items()
    }


def test_a_factor_of_one_changes_nothing():
    for name in ("residual_cnn", "spectral_norm", "attention", "lstm", "hf_vit"):
        network = network_of(case_named(name))
        module = resize(network, 1.0)
        assert_close(module.state_dict(), network.module.state_dict(), rtol=0, atol=0)


def test_the_network_is_not_touched():
    network = network_of(case_named("hf_vit"))
    before, text = copy.deepcopy(network.module.state_dict()), str(network.module)
    resize(network, 0.5)
    assert str(network.module) == text
    assert_close(network.module.state_dict(), before, rtol=0, atol=0)


def test_the_order_in_memory_stays():
    network = Network(zoo.residual_cnn().to(memory_format=torch.channels_last), torch.randn(2, 2, 8, 8))
    weight = resize(network, 0.5)[3][0].weight
    assert weight.shape == (4, 4, 3, 3)
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()


def test_tied_weights_stay_tied():
    module = resize(network_of(case_named("tied_embedding")), 0.5)
    assert module[0].weight is module[4].weight


def some(widths, seed=0):
    """For every group that can be sliced, as many random channels of each block, half of all."""
    generator, keep = torch.Generator().manual_seed(seed), {}
    for group in widths.groups:
        if not group.mixed:
            blocks = torch.arange(group.size).view(group.multiple, -1)
            order = torch.randperm(blocks.shape[1], generator=generator)[: (blocks.shape[1] + 1) // 2]
            keep[group] = blocks[:, order].flatten()
    return keep


NOT_SLICED = {
    "attention": "qkv_weight",  # torch's attention has one size for queries, keys and values
    "transformer_layer": "qkv_weight",
    "sequence_first": r"unflatten|qkv_weight",
    "transformer_encoder": "qkv_weight",
    "spectral_norm": "its outputs differ",  # the norm of the whole weight is another
    "hf_vit": "fails when resized",  # its code takes the size of values for that of queries
    "hf_bert": "fails when resized",
}


@each([case for case in RESIZED if case.name not in NOT_SLICED])
def test_a_slice_computes_what_the_network_computes_with_zeros(case):
    network = network_of(case)
    widths = read_widths(network)
    keep = some(widths)
    module = slice_widths(widths, keep).eval()
    kept = [group.channels if group not in keep else group.channels[keep[group]] for group in widths.groups]
    expected = Zeroed(widths, torch.cat([torch.zeros(1, dtype=torch.long), *kept])).predict()
    assert_close(logits(run(module, case.inputs())), expected)


@pytest.mark.parametrize("name", NOT_SLICED)
def test_what_cannot_be_sliced_is_refused(name):
    widths = read_widths(network_of(case_named(name)))
    with pytest.raises(ConversionError, match=NOT_SLICED[name]):
        slice_widths(widths, some(widths))


@pytest.mark.parametrize("name", ["resnet18", "wide_resnet", "pyramidnet", "vit"])
def test_slices_of_backbones_compute_the_same(name):
    build, shape = NETWORKS[name]
    model = build().double()
    for module in model.modules():  # running statistics that matter
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.1, 0.1)
            module.running_var.uniform_(0.5, 2)
    widths = read_widths(Network(model, torch.randn(shape, dtype=torch.float64)))
    keep = some(widths)
    assert len(keep) >= 3
    module = slice_widths(widths, keep)
    assert sum(p.numel() for p in module.parameters()) < sum(p.numel() for p in model.parameters())


def test_zeroed_inputs_are_zeroed_weights():
    """The specification itself: on an MLP, zero channels are zero columns of the next layer."""
    network = network_of(case_named("mlp"))
    widths, x = read_widths(network), case_named("mlp").inputs()
    first, second = widths.groups
    expected = copy.deepcopy(network.module)
    with torch.no_grad():
        expected[2].weight[:, [0, 3]] = 0
    index = torch.tensor([1, 2, 4, 5, 6, 7])
    assert_close(slice_widths(widths, {first: index})(x), expected(x))
    kept = torch.cat([torch.zeros(1, dtype=torch.long), first.channels[index], second.channels])
    assert_close(Zeroed(widths, kept).predict(), expected(x))


def test_channels_that_are_mixed_cannot_be_left_out():
    widths = read_widths(network_of(case_named("layer_norm")))
    with pytest.raises(ConversionError, match=r"those of 0.weight are mixed by layer_norm in 1"):
        slice_widths(widths, {widths.groups[0]: torch.tensor([0])})


@pytest.mark.parametrize("index", [[], [8], [-1]])
def test_positions_outside_of_a_group_are_refused(index):
    widths = read_widths(network_of(case_named("mlp")))
    with pytest.raises(InputError, match=r"positions must be from 0 to 7, and one at least, however: \["):
        slice_widths(widths, {widths.groups[0]: torch.tensor(index, dtype=torch.long)})


def test_blocks_must_stay_alike():
    widths = read_widths(network_of(case_named("grouped_cnn")))
    with pytest.raises(InputError, match=r"of every head or group of 0.weight must stay, however: \[2, 0\]"):
        slice_widths(widths, {widths.groups[0]: torch.tensor([0, 1])})


def test_a_number_that_runs_but_computes_something_else_is_found_out():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x):
            x = self.embed(x)
            heads = x.view(x.shape[0], -1, 4)  # at half the width, one head instead of two
            return self.head((heads * heads.sum(2, keepdim=True)).flatten(1))

    with pytest.raises(
        ConversionError, match=r"in the network itself \(.*\) \(2, 2, 2\) was expected and \(2, 1, 4\)"
    ):
        resize(Network(Tokens(), torch.randn(2, 6)), 0.5)
