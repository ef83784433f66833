"""Resize: every case of the zoo at half its width, or refused; slices compute the same numbers."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus import backbones
from pluribus.backbones.resnet import BasicBlock, Bottleneck, resnet
from pluribus.errors import ConversionError
from pluribus.mechanisms.network.initialise import reinitialise
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.widths.resize import resize
from tests import zoo
from tests.cases import CASES, case_named, each, logits, run

REFUSED = {
    "mini_vit": r"the network itself \(.*zoo.py:\d+\) fails when resized: unflatten",
    "counted_batch": r"the network itself \(.*zoo.py:\d+\) fails when resized: shape '\[10, 2, 4\]'",
    "data_dependent": "cannot be read by torch.export",
}
RESIZED = [case for case in CASES if case.name not in REFUSED]
UNCHANGED = ("root_layer",)
WIDENED = ("residual_cnn", "grouped_cnn", "tied_embedding", "root_layer", "lstm", "attention", "weight_norm")
"""Cases that become wider in the ordinary run: one for each kind of layer."""

IMAGE = (2, 3, 8, 8)


def residual(block, width=16):
    """Two stages of a ResNet: blocks with a projection and without one."""
    return resnet(block, (1, 2), classes=10, in_channels=3, stem="cifar", width=width)


# Networks of few blocks of each kind: more of them take longer and show nothing else.
NETWORKS = {
    "mlp": (lambda: backbones.mlp(6, 3), (2, 6)),
    "residual_mlp": (lambda: backbones.residual_mlp(6, 3, width=32), (2, 6)),
    "cnn": (backbones.cnn, (2, 1, 8, 8)),
    "vgg": (backbones.vgg, (2, 3, 32, 32)),
    "basic_blocks": (lambda: residual(BasicBlock), IMAGE),
    "bottlenecks": (lambda: residual(Bottleneck), IMAGE),
    "wide_resnet": (lambda: backbones.wide_resnet(10, 1), IMAGE),
    "pyramidnet": (lambda: backbones.pyramidnet(8, 30), IMAGE),
    "vit": (lambda: backbones.vit(depth=2, image_size=8, width=32, heads=4, mlp=64), IMAGE),
}
WHOLE = {
    "resnet18": (backbones.resnet18, (2, 3, 32, 32)),
    "resnet50": (backbones.resnet50, (2, 3, 32, 32)),
    "pyramidnet": (lambda: backbones.pyramidnet(20, 30), (2, 3, 32, 32)),
}


def network_of(case):
    return Network(case.model(), case.inputs())


@pytest.mark.parametrize("factor", [0.5, pytest.param(1.5, marks=pytest.mark.slow)])
@each(RESIZED, few=True)
def test_a_resized_network_runs_and_returns_the_same_shape(case, factor):
    check_resized(case, factor)


@pytest.mark.parametrize("name", WIDENED)
def test_a_network_of_each_kind_is_widened(name):
    check_resized(case_named(name), 1.5)


def check_resized(case, factor):
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


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        *(pytest.param(*given, id=name) for name, given in NETWORKS.items()),
        *(pytest.param(*given, id=f"whole {name}", marks=pytest.mark.slow) for name, given in WHOLE.items()),
    ],
)
def test_our_backbones_are_resized(build, shape):
    model = build()
    network = Network(model, torch.randn(shape))
    module = resize(network, 0.5).eval()
    ratio = sum(p.numel() for p in module.parameters()) / sum(p.numel() for p in model.parameters())
    assert 0.2 < ratio < 0.35
    assert module(torch.randn(shape)).shape == model(torch.randn(shape)).shape


@pytest.mark.parametrize("name", ["mlp", "residual_mlp", "cnn", "basic_blocks"])
def test_a_resized_backbone_is_one_that_was_built_so(name):
    builders = {
        "mlp": lambda f: backbones.mlp(6, 3, hidden=(int(50 * f), int(50 * f))),
        "residual_mlp": lambda f: backbones.residual_mlp(6, 3, width=int(32 * f)),
        "cnn": lambda f: backbones.cnn(width=int(16 * f)),
        "basic_blocks": lambda f: residual(BasicBlock, int(16 * f)),
    }
    shape = NETWORKS[name][1]
    module, expected = resize(Network(builders[name](1), torch.randn(shape)), 0.25), builders[name](0.25)
    assert str(module) == str(expected)
    assert {n: p.shape for n, p in module.state_dict().items()} == {
        n: p.shape for n, p in expected.state_dict().items()
    }


def test_a_factor_of_one_changes_nothing():
    for name in ("residual_cnn", "spectral_norm", "attention", "lstm"):
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
        ConversionError, match=r"in the network itself \(.*\) expected \(2, 2, 2\), got \(2, 1, 4\)"
    ):
        resize(Network(Tokens(), torch.randn(2, 6)), 0.5)


def test_a_prediction_that_needs_values_is_resized():
    network = Network(zoo.mlp(), torch.randn(4, 6), output=lambda returned: returned * float(returned.sum()))
    assert resize(network, 0.5)(torch.randn(4, 6)).shape == network.module(torch.randn(4, 6)).shape
