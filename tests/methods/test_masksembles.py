"""Masksembles: the laws of masks, where they lie, how they train, and members that are cut out."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import mlp, resnet18, vit, wide_resnet
from pluribus.errors import ConversionError, SettingError
from pluribus.methods import Masksembles
from pluribus.methods.masksembles import (
    draw_masks,
    effective_scale,
    expected_overlap,
    expected_width,
    generate_masks,
    kept_channels,
    overlap,
    overlap_law,
)
from tests.cases import case_named, run, seeded
from tests.verify import change_code, code_of

SCALES = [1, 1.1, 1.7, 2, 3, 6, 50, 1e9, math.inf]


def masks_of(ensemble):
    return dict(ensemble.members.tensors.own.named_buffers())


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 70), st.integers(1, 9), st.sampled_from(SCALES), st.integers(0, 10))
def test_masks_have_the_width_equal_ones_and_no_dead_channel(channels, members, scale, seed):
    masks = generate_masks(channels, members, scale, seeded(seed))
    assert masks.shape == (members, channels)
    assert set(masks.unique().tolist()) <= {0.0, 1.0}
    assert masks.sum(1).tolist() == [kept_channels(channels, members, scale)] * members
    assert masks.any(0).all()


@pytest.mark.parametrize("channels", [1, 2, 7, 10, 63, 64, 500])
@pytest.mark.parametrize("members", [1, 2, 4, 200])
def test_every_number_of_ones_that_can_cover_has_masks(channels, members):
    for ones in {-(-channels // members), channels // 2 + 1, channels}:
        if ones * members >= channels:
            masks = draw_masks(channels, members, ones, seeded(0))
            assert masks.sum(1).tolist() == [ones] * members
            assert masks.any(0).all()


def test_the_same_seed_draws_the_same_masks():
    first, again, other = (generate_masks(64, 4, 2.0, seeded(seed)) for seed in (1, 1, 2))
    assert_close(first, again)
    assert not torch.equal(first, other)


def test_the_ones_are_those_of_the_paper():
    scales = (1, 1.1, 1.4, 2, 3, 5, 6)
    assert [kept_channels(64, 4, scale) for scale in scales] == [64, 58, 46, 34, 26, 21, 20]
    assert [kept_channels(c, 4, 2) for c in (512, 2048, 10, 16)] == [273, 1092, 5, 8]


def test_all_covering_choices_are_equally_likely():
    generator, counts = seeded(0), dict.fromkeys(itertools.permutations(range(3), 2), 0)
    for _ in range(3000):  # two masks with two ones over three channels: each leaves another channel out
        left_out = (draw_masks(3, 2, 2, generator) == 0).nonzero()[:, 1]
        counts[tuple(left_out.tolist())] += 1
    expected = 3000 / len(counts)
    assert sum((count - expected) ** 2 / expected for count in counts.values()) < 20.5  # χ², 5 degrees, 0.1 %


@pytest.mark.parametrize(("ones", "positions", "value"), [(2, 4, 0.3889), (2, 6, 0.2444), (10, 20, 0.3413)])
def test_the_overlap_of_small_masks_is_hypergeometric(ones, positions, value):
    assert expected_overlap(ones, positions) == pytest.approx(value, abs=5e-5)
    masks = torch.rand(3000, positions, generator=seeded(0)).argsort(1) < ones
    assert overlap(masks.double()) == pytest.approx(value, abs=0.004)


@pytest.mark.parametrize("scale", [1.1, 2, 5, 10])
def test_the_overlap_of_large_masks_follows_the_law(scale):
    assert expected_overlap(1000, round(1000 * scale)) == pytest.approx(overlap_law(scale), rel=0.002)
    channels = int(expected_width(1000, 4, scale))
    masks = generate_masks(channels, 4, scale, seeded(0))
    assert overlap(masks) == pytest.approx(overlap_law(scale), abs=0.02)


@pytest.mark.parametrize("scale", [1.1, 2, 3])
@pytest.mark.parametrize("members", [1, 4, 20])
def test_masks_use_the_expected_width(members, scale):
    ones = 100
    used = [
        (torch.rand(members, round(ones * scale), generator=seeded(seed)).argsort(1) < ones).any(0).sum()
        for seed in range(50)
    ]
    assert torch.stack(used).double().mean() == pytest.approx(expected_width(ones, members, scale), rel=0.01)


def test_many_masks_keep_channels_at_the_rate_of_dropout():
    assert generate_masks(60, 1000, 3.0, seeded(0)).mean() == pytest.approx(1 / 3, abs=1e-6)


@pytest.mark.parametrize("channels", [7, 64, 500])
def test_the_effective_scale_is_the_scale_where_that_is_possible(channels):
    for scale in (1.1, 2.0, 3.0):
        ones = kept_channels(channels, 4, scale)
        assert expected_width(ones, 4, effective_scale(channels, 4, ones)) == pytest.approx(channels)
    assert effective_scale(channels, 4, channels) == pytest.approx(1)
    assert effective_scale(8, 4, 2) == math.inf


def test_masks_are_rounded_where_it_is_wanted_and_the_effective_scale_is_told():
    aligned = pl.convert(mlp(8, 3, hidden=(100, 100)), Masksembles(scale=2.0, align_masks=True))
    assert {int(mask[0].sum()) for mask in masks_of(aligned).values()} == {56}  # 53.3 are asked for
    assert "56 of 100 channels, scale 1.87" in str(aligned.conversion)


@pytest.mark.parametrize(("align", "width"), [(8, 56), (1, 53)])
def test_widths_are_aligned_in_frozen_members_alone(align, width):
    network, x = mlp(8, 3, hidden=(100, 100)).double(), torch.randn(5, 8, dtype=torch.float64)
    ensemble = pl.convert(network, Masksembles(scale=2.0, align=align), example=x).eval()
    assert {int(mask[0].sum()) for mask in masks_of(ensemble).values()} == {53}
    weights = [p for p in ensemble.member(0).parameters() if p.ndim == 2]
    assert [tuple(weight.shape) for weight in weights] == [(width, 8), (width, width), (3, width)]
    assert_close(ensemble.freeze()(x), ensemble(x))


def test_settings_of_the_first_version_keep_their_meaning():
    values = {"kind": "masksembles", "version": 1, "members": 3}
    expected = Masksembles(members=3, repeat=False, statistics="shared", align_masks=True)
    assert Masksembles.from_dict(values) == expected


def test_norms_behind_masks_have_statistics_for_each_member():
    x = torch.randn(8, 3, 8, 8, generator=seeded(0))
    method = Masksembles(members=3, statistics="member")
    ensemble = pl.convert(resnet18(width=4), method, example=x).train()
    ensemble.loss(x, torch.arange(8) % 3)
    own, shared = masks_of(ensemble), dict(ensemble.members.tensors.shared.named_buffers())
    means = {name: buffer for name, buffer in own.items() if name.endswith("running_mean")}
    assert len(means) == 19
    # Nothing before the first norm has a mask, so that members agree on it.
    assert [name for name in shared if name.endswith("running_mean")] == ["bn1.running_mean"]
    for mean in means.values():
        assert not torch.equal(mean[0], mean[1])
    ensemble.eval()
    assert_close(ensemble.freeze()(x), ensemble(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("scale", [1, 2])
def test_one_scale_above_one_is_aligned_and_one_is_the_network(scale):
    assert kept_channels(100, 4, scale, align=8) == {1: 100, 2: 56}[scale]


@pytest.mark.parametrize(("repeat", "statistics"), [(False, "shared"), (True, "shared"), (True, "member")])
def test_equal_masks_train_the_single_network(repeat, statistics):
    """Statistics included: shared ones normalise the samples of all members together."""
    model, x = resnet18(width=4).double().train(), torch.randn(10, 3, 8, 8, dtype=torch.float64)
    y = torch.arange(10) % 3
    method = Masksembles(members=4, scale=1, repeat=repeat, statistics=statistics)
    ensemble = pl.convert(model, method, example=x).train()
    loss, expected = ensemble.loss(x, y), cross_entropy(model(x), y)
    assert_close(loss, expected)
    loss.backward()
    expected.backward()
    shared = ensemble.members.tensors.shared
    for name, parameter in model.named_parameters():
        assert_close(shared.get_parameter(name).grad, parameter.grad)
    if not repeat:  # a repeated batch has another variance, by n / (n - 1)
        assert_close(dict(shared.named_buffers()), dict(model.named_buffers()))
    if statistics == "member":
        own = {name: buffer for name, buffer in masks_of(ensemble).items() if "mask_" not in name}
        assert "layer4.1.bn2.running_var" in own
        for name, buffer in own.items():
            assert_close(buffer, torch.stack([model.get_buffer(name)] * 4))


def test_masks_are_the_same_in_training_and_do_not_rescale():
    model = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2)).double()
    ensemble = pl.convert(model, Masksembles(members=4, scale=2.0))
    x = torch.randn(5, 3, dtype=torch.float64)
    (masks,) = masks_of(ensemble).values()
    assert masks.sum() < masks.numel()
    expected = model[2](model[1](model[0](x)) * masks.double().unsqueeze(1))
    for mode in (True, False):
        assert_close(ensemble.train(mode)(x), expected)


def test_disjoint_masks_are_independent_networks():
    network = mlp(6, 3, hidden=(16, 16)).double()
    ensemble = pl.convert(network, Masksembles(members=4, scale=math.inf)).eval()
    x = torch.randn(9, 6, dtype=torch.float64, generator=seeded(0))
    shared = dict(ensemble.members.tensors.shared.named_parameters())
    found = []
    for row in ensemble(x):
        gradients = torch.autograd.grad(row.square().sum(), shared.values(), retain_graph=True)
        found.append({name: g != 0 for name, g in zip(shared, gradients, strict=True)})
    last = list(shared)[-1]
    for one, other in itertools.combinations(found, 2):
        together = {name for name in shared if (one[name] & other[name]).any()}
        assert together <= {last}  # the bias of the outputs is everybody's


def test_samples_of_a_batch_belong_to_their_members():
    case = case_named("residual_cnn")
    ensemble = pl.convert(case.model(), Masksembles(members=3), example=case.inputs())
    change_code(ensemble.train(), lambda layer: layer.eval() if isinstance(layer, nn.BatchNorm2d) else None)
    x, y = case.inputs(), case.target()
    rows = ensemble(x)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parts = ensemble.method.assign(len(x), range(3), 0.0)
        torch.manual_seed(0)
        loss = ensemble.loss(x, y)
    expected = sum(cross_entropy(rows[i][part], y[part], reduction="sum") for i, part in enumerate(parts))
    assert_close(loss, expected / len(x))
    assert sorted(torch.cat(parts).tolist()) == list(range(len(x)))


@pytest.mark.parametrize("batch", [2, 3, 5, 9])
@pytest.mark.parametrize("name", ["mlp", "lstm", "sequence_first", "hf_vit"])
def test_any_batch_trains(name, batch):
    case = case_named(name)
    ensemble = pl.convert(case.model(), Masksembles(members=4), example=case.inputs()).train()
    x = case.inputs()
    x = {key: value[:batch] for key, value in x.items()} if isinstance(x, dict) else x[:batch]
    loss = ensemble.loss(x, case.target()[:batch])
    loss.backward()
    assert loss.isfinite()


def test_layers_that_read_one_tensor_share_its_mask():
    ensemble = pl.convert(resnet18(width=8), Masksembles(), example=torch.zeros(2, 3, 16, 16))
    conversion = ensemble.conversion
    first, skip = (conversion[f"layer2.0.{name}"].became for name in ("conv1", "downsample.0"))
    assert first == skip
    assert conversion["layer2.0.conv2"].became != first
    case = case_named("hf_vit")
    rows = [
        row.became
        for row in pl.convert(case.model(), Masksembles(), example=case.inputs()).conversion
        if row.names[0].endswith(("query", "key", "value", "q_proj", "k_proj", "v_proj"))
    ]
    assert len(rows) == 6
    assert rows[0] == rows[1] == rows[2] != rows[3]


@pytest.mark.parametrize("name", ["mlp", "conv1d", "conv3d", "weight_norm", "two_inputs", "recurrent"])
def test_the_network_s_input_has_no_mask(name):
    case = case_named("lstm" if name == "recurrent" else name)
    x = case.inputs()
    ensemble = pl.convert(case.model(), Masksembles(members=3), example=x).eval()
    assert masks_of(ensemble)
    values = x if isinstance(x, tuple) else (x,)
    for leaf in [value.requires_grad_() for value in values if value.is_floating_point()]:
        for row in run(ensemble, x):
            (gradient,) = torch.autograd.grad(row.square().sum(), leaf, retain_graph=True)
            assert (gradient.flatten(1) != 0).any(0).float().mean() > 0.9


def test_a_flattened_input_is_still_the_network_s_input():
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    ensemble = pl.convert(network, Masksembles(), example=torch.zeros(2, 4, 4))
    assert ensemble.conversion["1"].reason == "reads no hidden channels"
    assert [tuple(mask.shape) for mask in masks_of(ensemble).values()] == [(4, 8)]


@pytest.mark.parametrize(("name", "shape"), [("conv1d", 1), ("residual_cnn", 2), ("conv3d", 3)])
def test_whole_channels_of_convolutions_are_masked(name, shape):
    case = case_named(name)
    ensemble = pl.convert(case.model(), Masksembles(members=3), example=case.inputs())
    convolutions = [row for row in ensemble.conversion.converted if row.kind == f"Conv{shape}d"]
    module = code_of(ensemble)
    for row in convolutions:
        layer = module.get_submodule(row.names[0])
        assert layer.mask_0.shape == (layer.in_channels,)
    assert convolutions


def test_masks_begin_with_a_chosen_layer():
    x = torch.zeros(2, 3, 16, 16)
    method = Masksembles(from_layer="layer3")
    names = {row.names[0] for row in pl.convert(resnet18(width=8), method, example=x).conversion.converted}
    assert "layer3.0.conv1" in names
    assert all(name.startswith(("layer3", "layer4", "fc")) for name in names)
    with pytest.raises(ConversionError, match="from_layer must name a layer that can have a mask"):
        pl.convert(resnet18(width=8), Masksembles(from_layer="layer9"), example=x)


def test_masks_take_the_place_of_dropout():
    case = case_named("dropout_layers")
    ensemble = pl.convert(case.model(), Masksembles(members=3, replace_dropout=True), example=case.inputs())
    assert all("Dropout" in row.kind for row in ensemble.conversion.converted)
    assert all(layer.p == 0 for layer in code_of(ensemble).modules() if isinstance(layer, nn.Dropout))
    x = case.inputs()
    assert_close(ensemble.train()(x), ensemble.eval()(x))  # nothing random is left
    assert not torch.equal(*ensemble(x)[:2])
    assert_close(ensemble.freeze()(x), ensemble(x))


def test_attention_weights_are_no_channels():
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.drop, self.out = nn.Linear(4, 4), nn.Dropout(0.5), nn.Dropout(0.5)

        def forward(self, x):
            x = self.embed(x)
            return self.out(self.drop((x @ x.mT).softmax(-1)) @ x).mean(1)

    ensemble = pl.convert(Attending(), Masksembles(replace_dropout=True), example=torch.zeros(2, 5, 4))
    assert [row.names[0] for row in ensemble.conversion.converted] == ["out"]


def test_without_dropout_layers_there_is_nothing_to_replace():
    with pytest.raises(ConversionError, match="no dropout layer to replace"):
        pl.convert(mlp(4, 3), Masksembles(replace_dropout=True))


@pytest.mark.parametrize(("scale", "factor"), [(2.0, 1.875), (math.inf, 4.0), (1, 1.0)])
def test_members_keep_the_capacity_of_the_network(scale, factor):
    network = mlp(6, 3, hidden=(16, 16))
    ensemble = pl.convert(network, Masksembles(scale=scale, keep_capacity=True), seed=1)
    for mask in masks_of(ensemble).values():
        assert mask.shape == (4, int(16 * factor))
        assert mask.sum(1).tolist() == [16] * 4
    member, x = ensemble.member(0), torch.zeros(5, 6)
    assert pl.cost(member, x).multiply_adds == pl.cost(network, x).multiply_adds


def test_a_factory_by_width_is_widened_by_itself():
    ensemble = pl.convert(
        lambda width: mlp(6, 3, hidden=[int(16 * width)]), Masksembles(scale=2.0, keep_capacity=True)
    )
    assert {mask.shape[1] for mask in masks_of(ensemble).values()} == {30}


def test_layers_may_have_scales_of_their_own():
    network = mlp(6, 3, hidden=(24, 24))
    names = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    ensemble = pl.convert(network, Masksembles(scale=2.0), overrides={names[1]: {"scale": 1}})
    assert [int(mask[0].sum()) for mask in masks_of(ensemble).values()] == [24, 12][: len(masks_of(ensemble))]
    with pytest.raises(ConversionError, match="one scale, got"):
        pl.convert(
            resnet18(width=8),
            Masksembles(),
            example=torch.zeros(2, 3, 16, 16),
            overrides={"layer2.0.conv1": {"scale": 3.0}},
        )
    with pytest.raises(ConversionError, match="keep_capacity, which widens the network by one factor"):
        pl.convert(network, Masksembles(keep_capacity=True), overrides={names[1]: {"scale": 3.0}})


@pytest.mark.parametrize("selection", [{"exclude": "2"}, {"include": "4"}])
def test_a_widened_network_is_masked_everywhere(selection):
    network = mlp(6, 3, hidden=(24, 24))
    names = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    selection = {key: names[int(value) // 2] for key, value in selection.items()}
    with pytest.raises(ConversionError, match="masks must lie on all hidden tensors"):
        pl.convert(network, Masksembles(keep_capacity=True), **selection)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"members": 0}, "members must be at least 1"),
        ({"scale": 0.9}, "scale must be at least 1"),
        ({"scale": math.nan}, "scale must be a finite number"),
        ({"align": 0}, "align must be at least 1"),
        ({"from_layer": 3}, "from_layer must be a string or None"),
        ({"repeat": 1}, "repeat must be True or False"),
        ({"statistics": "option"}, "statistics must be"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, said):
    with pytest.raises(SettingError, match=said):
        Masksembles(**settings)


def test_infinite_scales_survive_files(tmp_path):
    ensemble = pl.convert(mlp(6, 3, hidden=(8, 8)), Masksembles(scale=math.inf)).eval()
    ensemble.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", mlp(6, 3, hidden=(8, 8))).eval()
    assert loaded.method == ensemble.method
    x = torch.randn(5, 6)
    assert_close(loaded(x), ensemble(x), rtol=0, atol=0)
    assert_close(masks_of(loaded), masks_of(ensemble), rtol=0, atol=0)


def test_masks_follow_the_weights_to_another_network(tmp_path):
    """The masks that were trained with are saved; those that another seed draws are not used."""
    first, second = (pl.convert(mlp(6, 3, hidden=(8, 8)), Masksembles(), seed=seed) for seed in (0, 1))
    assert not all(map(torch.equal, masks_of(first).values(), masks_of(second).values()))
    second.load_state_dict(first.state_dict())
    assert_close(masks_of(second), masks_of(first), rtol=0, atol=0)


BACKBONES = {
    "resnet18": (resnet18, (3, 32, 32)),
    "wrn16_4": (lambda: wide_resnet(16, 4), (3, 16, 16)),
    "vit": (lambda: vit(image_size=16, patch=4, width=32, depth=2, heads=4, mlp=48), (3, 16, 16)),
}


@pytest.mark.parametrize("name", BACKBONES)
@pytest.mark.parametrize("align", [1, 8])
@pytest.mark.sampled(6)
def test_members_that_are_cut_out_compute_what_masks_do(name, align):
    build, shape = BACKBONES[name]
    x = torch.randn(2, *shape, dtype=torch.float64, generator=seeded(0))
    ensemble = pl.convert(build().double(), Masksembles(members=2, align=align), example=x).eval()
    frozen = ensemble.freeze()
    assert "own" in frozen.notes[0]
    more = torch.randn(3, *shape, dtype=torch.float64, generator=seeded(1))
    with torch.no_grad():
        assert_close(frozen(more), ensemble(more))


def test_a_member_is_small_and_goes_alone():
    network, x = resnet18(width=16).eval(), torch.randn(3, 3, 16, 16)
    ensemble = pl.convert(network, Masksembles(scale=3.0), example=x).eval()
    member = ensemble.member(2)
    assert pl.cost(member, x).parameters < 0.4 * pl.cost(network, x).parameters
    assert_close(member(x), ensemble(x)[2], rtol=1e-4, atol=1e-5)
    for copied in (copy.deepcopy(member), pickle.loads(pickle.dumps(member))):
        assert_close(copied(x), member(x), rtol=0, atol=0)
