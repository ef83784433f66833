"""Members that are cut out: they compute what masks do, with the multiply-adds that the masks predict."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import mlp, resnet18
from pluribus.mechanisms.masks.writer import Writer
from pluribus.methods import Masksembles
from tests.cases import seeded
from tests.verify import code_of
from tests.zoo import Apply

PLAIN = Masksembles(members=3, scale=2.0, align=1)


def images(channels=4, batch=5, side=6):
    return torch.randn(batch, channels, side, side, dtype=torch.float64, generator=seeded(0))


def masked(network, x, method=PLAIN):
    return pl.convert(network.double(), method, example=x).eval()


def between(*layers):
    """A convolution of 12 channels, something between, and a layer that reads it through a mask."""
    return nn.Sequential(nn.Conv2d(4, 12, 3), *layers)


SLICED = {
    "relu": between(nn.ReLU(), nn.Conv2d(12, 3, 4)),
    "norm": between(nn.BatchNorm2d(12), nn.Conv2d(12, 3, 4)),
    "norm that is not folded": between(nn.ReLU(), nn.BatchNorm2d(12), nn.Conv2d(12, 3, 4)),
    "instance norm": between(nn.InstanceNorm2d(12, affine=True), nn.Conv2d(12, 3, 4)),
    "prelu": between(nn.PReLU(12), nn.Conv2d(12, 3, 4)),
    "max pool": between(nn.MaxPool2d(2), nn.Conv2d(12, 3, 2)),
    "adaptive pool": between(nn.AdaptiveAvgPool2d(2), nn.Conv2d(12, 3, 2)),
    "upsampling": between(nn.Upsample(scale_factor=2), nn.Conv2d(12, 3, 8)),
    "depthwise": between(nn.Conv2d(12, 12, 3, groups=12, padding=1), nn.ReLU(), nn.Conv2d(12, 3, 4)),
    "transposed": between(nn.ReLU(), nn.ConvTranspose2d(12, 3, 2)),
    "padding": between(nn.ZeroPad2d(1), nn.Conv2d(12, 3, 4)),
    "mean": between(Apply(lambda x: x.mean((2, 3))), nn.Linear(12, 3)),
    "mean kept": between(Apply(lambda x: x.mean((2, 3), keepdim=True)), nn.Conv2d(12, 3, 1)),
    "tokens": between(Apply(lambda x: x.flatten(2).transpose(1, 2)), nn.Linear(12, 3)),
    "permuted": between(Apply(lambda x: x.permute(0, 2, 3, 1)), nn.Linear(12, 3)),
    "one position": between(Apply(lambda x: x.flatten(2).transpose(1, 2)[:, 0]), nn.Linear(12, 3)),
    "some positions": between(Apply(lambda x: x[:, :, 1:3]), nn.Conv2d(12, 3, 2)),
    "scaled": between(Apply(lambda x: 2 * x + x.sigmoid()), nn.Conv2d(12, 3, 4)),
    "dropout": between(nn.Dropout(0.5), nn.Conv2d(12, 3, 4)),
}
WHOLE = {
    "softmax": between(nn.Softmax(1), nn.Conv2d(12, 3, 4)),
    "sum of running sums": between(Apply(lambda x: x.cumsum(1)), nn.Conv2d(12, 3, 4)),
    "group norm": between(nn.GroupNorm(3, 12), nn.Conv2d(12, 3, 4)),
    "heads": between(
        Apply(lambda x: x.unflatten(1, (3, 4)).softmax(2).flatten(1, 2).flatten(2).mean(2)), nn.Linear(12, 3)
    ),
    "some channels": between(Apply(lambda x: x[:, 2:8]), nn.Conv2d(6, 3, 4)),
    "their mean": between(Apply(lambda x: x.mean(1, keepdim=True)), nn.Conv2d(1, 3, 4)),
}


@pytest.mark.parametrize("name", SLICED)
@pytest.mark.sampled(3)
def test_a_layer_computes_the_channels_alone_that_are_read(name):
    x = images()
    ensemble = masked(SLICED[name], x)
    member = ensemble.member(1)
    assert_close(member(x[:3]), ensemble(x[:3])[1])
    assert_close(ensemble.freeze()(x), ensemble(x))
    first = next(p for p in member.parameters() if p.ndim > 1)
    assert first.shape[0] == 6  # of 12


@pytest.mark.parametrize("name", WHOLE)
def test_what_mixes_channels_gets_them_all(name):
    x = images()
    ensemble = masked(WHOLE[name], x)
    member = ensemble.member(1)
    assert_close(member(x[:3]), ensemble(x[:3])[1])
    first = next(p for p in member.parameters() if p.ndim > 1)
    assert first.shape[0] == 12


class Concatenated(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.out = nn.Conv2d(4, 6, 3), nn.Conv2d(4, 8, 3), nn.Conv2d(14, 3, 4)

    def forward(self, x):
        return self.out(torch.cat([self.left(x).relu(), self.right(x)], 1)).flatten(1)


def test_parts_of_a_concatenation_are_cut_each_by_itself():
    x = images()
    ensemble = masked(Concatenated(), x)
    member, mask = ensemble.member(0), next(ensemble.members.tensors.own.buffers())[0]
    rows = [p.shape[0] for p in member.parameters() if p.ndim == 4]
    assert rows == [int(mask[:6].sum()), int(mask[6:].sum()), 3]
    assert_close(member(x), ensemble(x)[0])


def test_a_part_that_a_member_does_not_read_may_be_empty():
    x = images()
    ensemble = masked(Concatenated(), x, Masksembles(members=14, scale=math.inf))  # a channel each
    assert_close(ensemble.freeze()(x), ensemble(x))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 12), nn.Linear(12, 3)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return self.last(self.first(x))


def test_a_network_that_writes_into_buffers_is_not_cut():
    x = torch.zeros(5, 4, dtype=torch.float64)
    ensemble = masked(Counting(), x)
    frozen = ensemble.freeze()
    assert "writes into calls in eval mode" in frozen.notes[0]
    frozen(x)
    # A call in eval mode writes nothing.
    assert dict(frozen.named_buffers())["networks.0.members.tensors.shared.calls"] == 0


def test_members_follow_the_ensemble_to_another_precision_and_go_there_themselves():
    x = images()
    ensemble = masked(SLICED["relu"], x)
    ensemble.freeze()
    expected = ensemble(x)
    narrow = ensemble.freeze().float()
    assert_close(narrow(x.float()), expected.float())
    assert_close(ensemble.member(0).float()(x.float()), expected[0].float())
    with pytest.raises(pl.InputError, match=r"frozen for, \(float32\[5, 4, 6, 6\]\), got \(float64"):
        narrow(x)
    frozen = ensemble.float().freeze()
    assert "weights of their own" in frozen.notes[0]
    assert_close(frozen(x.float()), expected.float())


def test_channels_of_a_flattened_tensor_stay_while_one_of_their_entries_is_read():
    x = images()
    ensemble = masked(nn.Sequential(nn.Conv2d(4, 12, 5), nn.Flatten(), nn.Linear(48, 3)), x)
    member, mask = ensemble.member(0), next(ensemble.members.tensors.own.buffers())[0]
    convolution, linear = (p for p in member.parameters() if p.ndim > 1)
    assert convolution.shape[0] == int(mask.view(12, 4).any(1).sum())
    assert linear.shape == (3, int(mask.sum()))
    assert_close(member(x), ensemble(x)[0])


def test_grouped_convolutions_stay_whole():
    x = images()
    ensemble = masked(between(nn.Conv2d(12, 12, 3, groups=3), nn.Flatten(), nn.Linear(48, 3)), x)
    assert_close(ensemble.freeze()(x), ensemble(x))


class Skipped(nn.Module):
    """A stream that a block reads through a mask, and its end through another."""

    def __init__(self):
        super().__init__()
        self.first, self.block, self.last = nn.Conv2d(4, 12, 1), nn.Conv2d(12, 12, 1), nn.Conv2d(12, 3, 1)

    def forward(self, x):
        x = self.first(x)
        return self.last((x + self.block(x)).relu())


class WithoutGradients(Skipped):
    def forward(self, x):
        x = self.first(x)
        with torch.no_grad():
            y = self.block(x)
        return self.last((x + y).relu())


def test_regions_without_gradients_stay_whole():
    x = images()
    ensemble = masked(WithoutGradients(), x)
    frozen = ensemble.freeze()
    assert_close(frozen(x), ensemble(x))
    assert frozen.notes[0] == "masks are multiplied, not cut out: submod_1 is a graph of its own"
    assert_close(copy.deepcopy(ensemble.member(2))(x), ensemble(x)[2])


def test_a_channel_that_the_skip_needs_is_kept():
    x = images()
    ensemble = masked(Skipped(), x)
    for i in range(3):
        block, last = masks(ensemble, i)
        first, middle, end = (p.shape[:2] for p in ensemble.member(i).parameters() if p.ndim == 4)
        assert first == (int((block | last).sum()), 4)
        assert middle == (int(last.sum()), int(block.sum()))
        assert end == (3, int(last.sum()))


def masks(ensemble, row):
    return [mask[row] != 0 for mask in ensemble.members.tensors.own.buffers()]


def test_multiply_adds_of_an_mlp_are_those_of_its_masks():
    x = torch.randn(7, 6)
    ensemble = pl.convert(mlp(6, 3, hidden=(20, 30)), PLAIN).eval()
    expected = 7 * 6 * 20  # the first layer, once, in which some member reads every channel
    for row in range(3):
        first, second = (int(mask.sum()) for mask in masks(ensemble, row))
        expected += 7 * (first * second + second * 3)
    assert pl.cost(ensemble.freeze(), x).multiply_adds == expected


def test_multiply_adds_of_a_resnet_are_those_of_its_masks():
    x, side = torch.randn(2, 3, 16, 16), {1: 16, 2: 8, 3: 4, 4: 2}
    ensemble = pl.convert(resnet18(width=16), PLAIN, example=x).eval()
    module, own = code_of(ensemble), dict(ensemble.members.tensors.own.named_buffers())
    names = {id(buffer): name for name, buffer in module.named_buffers()}

    def mask(layer, row):
        return own[names[id(module.get_submodule(layer).mask_0)]][row] != 0

    total, stem = 0, torch.zeros(16, dtype=torch.bool)
    for row in range(3):
        live = mask("fc", row)
        total += 2 * int(live.sum()) * 10
        for stage, block in ((s, b) for s in (4, 3, 2, 1) for b in (1, 0)):
            pixels, name = 2 * side[stage] ** 2, f"layer{stage}.{block}"
            entering, inner = mask(f"{name}.conv1", row), mask(f"{name}.conv2", row)
            total += 9 * pixels * int(inner.sum()) * (int(entering.sum()) + int(live.sum()))
            if stage > 1 and block == 0:
                total += pixels * int(live.sum()) * int(entering.sum())
                live = entering
            else:
                live = live | entering
        stem |= live
    total += 9 * 2 * 16**2 * 3 * int(stem.sum())
    assert pl.cost(ensemble.freeze(), x).multiply_adds == total


def test_what_precedes_the_first_mask_is_computed_once():
    x = images()
    ensemble = masked(between(nn.ReLU(), nn.Conv2d(12, 3, 4)), x)
    frozen = ensemble.freeze()
    kernels = [p.shape for p in frozen.parameters() if p.ndim == 4]
    assert kernels == [(12, 4, 3, 3), *[(3, 6, 4, 4)] * 3]


def test_what_cutting_trips_over_is_a_reason_to_multiply(monkeypatch):
    def trip(self, step, part):
        raise KeyError("unheard of")

    monkeypatch.setattr(Writer, "_copy", trip)
    x = images()
    ensemble = masked(SLICED["relu"], x)
    frozen = ensemble.freeze()
    assert "unheard of" in frozen.notes[0]
    assert_close(frozen(x), ensemble(x))
    assert_close(ensemble.member(1)(x), ensemble(x)[1])


def test_masked_networks_write_nothing_in_place():
    network = between(nn.ReLU(inplace=True), nn.Conv2d(12, 3, 4))
    x = images()
    ensemble = masked(network, x)
    before = x.clone()
    assert_close(ensemble.freeze()(x), ensemble(x))
    assert_close(x, before, rtol=0, atol=0)


def test_functional_layers_are_cut_as_layers_are():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(12, 4, 3, 3))
            self.out = nn.Conv2d(12, 3, 4)

        def forward(self, x):
            return self.out(F.conv2d(x, self.weight).relu())

    x = images()
    ensemble = masked(Functional(), x)
    assert next(p for p in ensemble.member(0).parameters() if p.ndim == 4).shape[0] == 6
    assert_close(ensemble.member(0)(x), ensemble(x)[0])
