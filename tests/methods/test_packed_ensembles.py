"""Packed-Ensembles: M narrow networks, independent, with the paper's counts."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import cnn, mlp, resnet18, vit, wide_resnet
from pluribus.errors import ConversionError, SettingError
from pluribus.methods import DeepEnsembles, PackedEnsembles
from pluribus.methods.packed_ensembles import mask_density, sparsity_bound, sparsity_divergence
from tests import zoo
from tests.cases import CASES, case_named, each, run
from tests.reference.packed_ensembles import VERSIONS, packed_forward

PACKED = PackedEnsembles(members=3, alpha=1.5)
REFUSED = ("mini_vit", "counted_batch", "data_dependent")
NARROWED = [case for case in CASES if case.name not in REFUSED]


def packed(case, method=PACKED):
    return pl.convert(case.model(), method, example=case.inputs())


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@each([case for case in NARROWED if not case.random_in_training])
@pytest.mark.sampled(5)
def test_packed_is_as_many_networks_trained_alone(case, reduction):
    method = PackedEnsembles(members=3, alpha=1.5, reduction=reduction)
    ensemble, x, y = packed(case, method).train(), case.inputs(), case.target()
    members = [ensemble.member(i).train() for i in range(3)]
    ensemble.loss(x, y).backward()
    for i, member in enumerate(members):
        nn.functional.cross_entropy(run(member, x), y).backward()
        for name, parameter in member.named_parameters():
            if name in dict(ensemble.members.tensors.own.named_parameters()) and parameter.grad is not None:
                came = ensemble.members.tensors.own.get_parameter(name).grad[i]
                assert_close(came, parameter.grad / (3 if reduction == "mean" else 1))


@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize("version", VERSIONS)
def test_packed_is_one_wide_network_of_groups(version, gamma):
    """Fig. 3: members alone, (a), are the wide networks (b) and (c); groups are masks on dense layers."""
    convolutions = [nn.Conv2d(2, 12, 3), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 24, 3), nn.ReLU()]
    model = nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 3)).double()
    method = PackedEnsembles(members=3, alpha=1.5, gamma=gamma, min_channels=1, reduction="mean")
    x, y = torch.randn(4, 2, 8, 8, dtype=torch.float64), torch.tensor([0, 1, 2, 0])
    ensemble = pl.convert(model, method, example=x).train()
    members = [ensemble.member(i) for i in range(3)]
    assert members[0][3].groups == gamma
    outputs = packed_forward(members, x, version)
    assert_close(ensemble(x), outputs)
    ensemble.loss(x, y).backward()
    nn.functional.cross_entropy(outputs.flatten(0, 1), y.repeat(3)).backward()
    for name, parameter in ensemble.members.tensors.own.named_parameters():
        assert_close(parameter.grad, torch.stack([m.get_parameter(name).grad for m in members]))


@each(
    [
        case
        for case in NARROWED
        if case.name in ("layer_norm", "group_norm", "attention", "hf_vit", "monai_unet")
    ]
)
def test_no_member_reads_another_s_parameters(case):
    ensemble, x = packed(case).eval(), case.inputs()
    own = dict(ensemble.members.tensors.own.named_parameters())
    for i, row in enumerate(run(ensemble, x)):
        gradients = torch.autograd.grad(
            row.square().sum(), own.values(), retain_graph=True, allow_unused=True
        )
        others = [j for j in range(3) if j != i]
        found = [g for g in gradients if g is not None]
        assert all(not g[others].any() for g in found)
        assert any(g[i].any() for g in found)


def test_members_start_apart_and_as_the_network_would():
    model = mlp(40, 3, hidden=(400, 400))
    ensemble = pl.convert(model, PackedEnsembles(members=4, alpha=2))
    weight = ensemble.members.tensors.own.get_parameter("hidden.1.linear.weight").detach()
    assert weight.shape == (4, 200, 200)
    assert_close(torch.corrcoef(weight.flatten(1)), torch.eye(4), atol=0.03, rtol=0)
    assert_close(float(weight.abs().max()), 200**-0.5, atol=1e-3, rtol=0)  # the narrow layer's bound


def test_alpha_members_is_a_deep_ensemble():
    for name in ("residual_cnn", "data_dependent"):
        case = case_named(name)
        one = pl.convert(case.model(), PackedEnsembles(members=2, alpha=2))
        other = pl.convert(case.model(), DeepEnsembles(members=2))
        assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_resnet_18_has_the_counts_of_the_paper():
    x = torch.randn(2, 3, 32, 32)
    method = PackedEnsembles(members=4, alpha=2, gamma=2)
    ensemble = pl.convert(resnet18(), method, example=x).eval()
    cost = pl.cost(ensemble, x[:1])
    assert cost.parameters == 8_175_784
    assert round(cost.multiply_adds / 1e9, 3) == 0.481
    assert ensemble.conversion["layer4.1.conv2"].became == (
        "4 copies, weight [512, 512, 3, 3] to [256, 128, 3, 3], 2 groups"
    )
    assert "groups" not in ensemble.conversion["layer4.1.conv1"].became
    assert "groups" not in ensemble.conversion["layer1.1.conv2"].became  # 32 inputs are too few
    assert ensemble.member(2).layer4[1].conv2.groups == 2


def test_first_convolutions_of_blocks_have_groups_where_they_are_wanted():
    x, method = torch.randn(2, 3, 8, 8), PackedEnsembles(members=2, gamma=2, min_channels=1)
    overrides = {"layer2.0.conv1": {"gamma": 4}}
    whole = pl.convert(wide_resnet(10, 1), method, example=x, overrides=overrides).member(0)
    assert (whole.layer3[0].conv1.groups, whole.layer3[0].conv2.groups) == (1, 2)
    assert whole.layer2[0].conv1.groups == 4
    every = pl.convert(wide_resnet(10, 1), replace(method, gamma_first=True), example=x).member(0)
    assert every.layer3[0].conv1.groups == 2


def multiply_adds_ratio(ensemble, model, x):
    return pl.cost(ensemble, x).multiply_adds / pl.cost(model, x).multiply_adds


@pytest.mark.parametrize(("cost", "gamma"), [(1.5, 1), (3.0, 2)])
def test_cost_is_that_of_the_members_and_widths_fit_it(cost, gamma):
    x, model = torch.randn(2, 1, 8, 8), cnn(width=32).eval()
    method = PackedEnsembles(members=4, cost=cost, gamma=gamma, min_channels=4)
    ensemble = pl.convert(model, method, example=x).eval()
    assert 0.93 * cost < multiply_adds_ratio(ensemble, model, x) <= cost
    # The widths are the largest that fit: a little more, and they cost more than was wanted.
    wider = pl.convert(model, replace(ensemble.method, alpha=ensemble.method.alpha * 1.06), example=x).eval()
    assert multiply_adds_ratio(wider, model, x) > cost


def test_solved_width_is_stored_in_place_of_the_cost(tmp_path):
    model = mlp(8, 3, hidden=(64, 64))
    ensemble = pl.convert(model, PackedEnsembles(cost=1.5), overrides={"output": {"gamma": 1}}).eval()
    assert ensemble.method.cost is None
    assert ensemble.method.alpha > 2
    ensemble.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", mlp(8, 3, hidden=(64, 64))).eval()
    assert loaded.method == ensemble.method
    assert_close(loaded(torch.ones(2, 8)), ensemble(torch.ones(2, 8)), rtol=0, atol=0)


def test_cost_below_that_of_single_channels_is_refused():
    with pytest.raises(SettingError, match=r"cost must be at least .* got 0.01. Have fewer members."):
        pl.convert(mlp(8, 3, hidden=(16,)), PackedEnsembles(cost=0.01))


def test_settings_of_earlier_versions_keep_their_meaning():
    first = PackedEnsembles.from_dict({"kind": "packed_ensembles", "version": 1, "alpha": 3.0})
    assert first == PackedEnsembles(alpha=3.0, reduction="mean", gamma_first=True)
    second = PackedEnsembles.from_dict({"kind": "packed_ensembles", "version": 2, "gamma": 2})
    assert second == PackedEnsembles(gamma=2, gamma_first=True)


@pytest.mark.parametrize(
    ("members", "alpha", "gamma"), [(4, 2, 1), (4, 2, 2), (2, 1, 1), (4, 4, 2), (3, 3, 1)]
)
def test_inner_layers_follow_the_law_of_the_paper(members, alpha, gamma):
    model, x = wide_resnet(10, 6), torch.randn(2, 3, 16, 16)
    method = PackedEnsembles(members=members, alpha=alpha, gamma=gamma, min_channels=1)
    ensemble = pl.convert(model, method, example=x)
    own = ensemble.members.tensors.own.get_parameter("layer3.0.conv2.weight")
    assert own.numel() == model.layer3[0].conv2.weight.numel() * alpha**2 / (members * gamma)


def test_left_layers_keep_their_widths_and_are_shared():
    model, x = zoo.residual_cnn(), torch.randn(3, 2, 8, 8)
    ensemble = pl.convert(model, PACKED, example=x, exclude="0")
    assert_close(ensemble.members.tensors.shared.get_parameter("0.weight"), model[0].weight)
    assert ensemble.members.tensors.own.get_parameter("3.0.weight").shape == (3, 4, 8, 3, 3)
    assert (ensemble.conversion["0"].became, ensemble.conversion["0"].reason) == ("shared", "excluded")
    frozen = pl.convert(zoo.frozen_trunk(), PACKED, example=x)
    assert frozen.conversion["0"].reason == "frozen"
    assert frozen(x).shape == (3, 3, 3)


def test_there_may_be_nothing_to_narrow():
    ensemble = pl.convert(nn.Linear(6, 3), PACKED, example=torch.randn(2, 6))
    assert ensemble.conversion.notes == ("there is no inner width, so every member is a whole network",)


def test_a_factory_of_widths_builds_what_cannot_be_narrowed():
    def build(width):
        size = int(4 * width)
        halves = zoo.Apply(lambda x: x.view(-1, 2, size).sum(1))  # a number that does not follow
        return nn.Sequential(nn.Linear(6, 2 * size), halves, nn.Linear(size, 3))

    x = torch.randn(3, 6)
    with pytest.raises(ConversionError, match=r"1 \(.*\) fails when resized: .* build\(0.5\) one of half"):
        pl.convert(build(1.0), PackedEnsembles(members=4, alpha=2), example=x)
    ensemble = pl.convert(build, PackedEnsembles(members=4, alpha=2), example=x)
    weight = ensemble.members.tensors.own.get_parameter("0.weight")
    assert weight.shape == (4, 4, 6)
    assert not torch.equal(*weight[:2])
    assert ensemble(x).shape == (4, 3, 3)
    assert pl.convert(build, DeepEnsembles(members=2)).member(0)[0].out_features == 8
    with pytest.raises(ConversionError, match="builds groups itself, got 2"):
        pl.convert(build, PackedEnsembles(gamma=2), example=x)


def test_a_factory_must_build_the_same_layers_at_every_width():
    def build(width):
        return nn.Sequential(nn.Linear(6, int(8 * width), bias=width == 1), nn.Linear(int(8 * width), 3))

    with pytest.raises(ConversionError, match=r"same layers at every width, got 0.bias at some"):
        pl.convert(build, PACKED)


def test_shuffled_members_see_batches_of_their_own():
    case = case_named("residual_cnn")
    ensemble = packed(case, PackedEnsembles(members=2, alpha=1, shuffle_members=True)).train()
    x, y = case.inputs(), case.target()
    ensemble.loss(x, y).backward()
    for i, part in enumerate((slice(0, 5), slice(5, 10))):
        member = ensemble.member(i).train()
        nn.functional.cross_entropy(member(x[part]), y[part]).backward()
        for name, parameter in member.named_parameters():
            assert_close(ensemble.members.tensors.own.get_parameter(name).grad[i], parameter.grad)


def test_attention_of_every_kind_is_packed():
    x = torch.randn(2, 3, 32, 32)
    ensemble = pl.convert(vit(depth=1), PackedEnsembles(members=4, alpha=2), example=x)
    assert ensemble.member(0).blocks[0].attention.attention.heads == 4
    assert ensemble.member(0).blocks[0].attention.attention.query.weight.shape == (64, 64)


def test_a_packed_network_is_trained_like_any_other():
    case = case_named("mlp")
    ensemble, x, y = packed(case), case.inputs(), case.target()
    before = copy.deepcopy(ensemble.state_dict())
    optimizer = torch.optim.SGD(ensemble.parameter_groups(lr=0.1))
    losses = []
    for _ in range(20):
        loss = ensemble.loss(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(not torch.equal(before[name], value) for name, value in ensemble.state_dict().items())


@settings(deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 1.0), st.floats(0.01, 10), st.floats(-3, 3))
def test_the_divergence_of_a_sparse_layer_is_bounded(seed, density, spread, shift):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(5, 12, dtype=torch.float64, generator=generator)
    mean = shift + torch.randn(12, dtype=torch.float64, generator=generator)
    variance = spread * torch.rand(12, dtype=torch.float64, generator=generator) + 1e-3
    divergence = sparsity_divergence(weight, mean, variance, density)
    bound = sparsity_bound(weight, mean, variance, density)
    assert (divergence >= -1e-9).all()
    assert (divergence <= bound * (1 + 1e-9) + 1e-9).all()


def test_a_layer_that_keeps_all_weights_does_not_diverge():
    weight, mean, variance = torch.randn(5, 12), torch.randn(12), torch.rand(12) + 0.1
    assert_close(sparsity_divergence(weight, mean, variance, 1.0), torch.zeros(5))
    assert_close(sparsity_bound(weight, mean, variance, 1.0), torch.zeros(5))
    assert mask_density(4, 2) == 0.125


def test_the_divergence_is_that_of_torch():
    weight, mean, variance = (
        torch.randn(5, 12).double(),
        torch.randn(12).double(),
        torch.rand(12).double() + 0.1,
    )
    p, normal = 0.25, torch.distributions.Normal
    spread = weight.square() @ variance
    masked = p * (weight.square() @ (mean.square() * (1 - p) + variance))  # Eq. (13)
    dense, sparse = normal(weight @ mean, spread.sqrt()), normal(p * (weight @ mean), masked.sqrt())
    expected = torch.distributions.kl_divergence(dense, sparse)
    assert_close(sparsity_divergence(weight, mean, variance, p), expected)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"members": 0}, "members must be at least 1, got 0"),
        ({"alpha": 0}, "alpha must be above 0, got 0"),
        ({"gamma": 1.5}, "gamma must be a whole number, got 1.5"),
        ({"min_channels": 0}, "min_channels must be at least 1, got 0"),
        ({"reduction": "max"}, "reduction must be one of 'auto', 'sum', 'mean', got 'max'"),
        ({"shuffle_members": 1}, "shuffle_members must be True or False, got 1"),
    ],
)
def test_impossible_settings_are_refused_by_name(setting, message):
    with pytest.raises(SettingError, match=message):
        PackedEnsembles(**setting)
