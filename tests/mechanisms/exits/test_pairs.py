"""Exits: pairs, preferences, the orders of slots."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import vgg
from pluribus.errors import ConversionError, InputError, SettingError
from pluribus.mechanisms.exits.pairs import (
    Pairs,
    depth_divergence,
    greatest,
    kind_of,
    preferences,
    slot_orders,
)
from pluribus.mechanisms.members.index import share_among
from pluribus.methods import MIMMO, MIMO, SAE, EarlyExit
from tests.cases import blocks

logits = st.lists(st.lists(st.floats(-5, 5, width=32), min_size=3, max_size=3), min_size=1, max_size=4)


@settings(deadline=None, max_examples=40)
@given(logits, st.floats(0.05, 3))
def test_preferences_sum_to_one_and_diverge_from_the_uniform_prior(values, temperature):
    theta = preferences(torch.tensor(values, dtype=torch.float64), temperature)
    assert_close(theta.sum(1), torch.ones(len(values), dtype=torch.float64))
    expected = [sum(p * math.log(3 * p) for p in row if p > 0) for row in theta.tolist()]
    assert_close(depth_divergence(theta), torch.tensor(expected, dtype=torch.float64), atol=1e-9, rtol=1e-6)


def test_zero_logits_are_uniform_and_diverge_by_nothing():
    theta = preferences(torch.zeros(2, 5), 0.3)
    assert_close(theta, torch.full((2, 5), 0.2))
    assert_close(depth_divergence(theta), torch.zeros(2), atol=1e-6, rtol=0)


def test_the_greatest_logits_are_kept_and_the_deeper_one_of_equals():
    assert greatest([[0.0, 0.0, 0.0], [2.0, -1.0, 1.0]], 2) == [(0, 1), (0, 2), (1, 0), (1, 2)]
    assert greatest([[0.0] * 4], 1) == [(0, 3)]
    assert greatest([[1.0, 1.0, 0.0]], 1) == [(0, 1)]


@pytest.mark.parametrize(
    ("inputs", "exits", "kind"),
    [
        (1, 1, "single_exit"),
        (1, 2, "early_exit"),
        (1, 4, "early_exit"),
        (2, 1, "mimo"),
        (3, 4, "mimmo"),
        (2, 3, "in_between"),
    ],
)
def test_configurations_have_the_names_of_the_paper(inputs, exits, kind):
    assert kind_of(inputs, exits, 4) == kind
    ensemble = pl.convert(blocks(4), SAE(inputs, exits), example=torch.zeros(2, 6))
    assert ensemble.case == kind


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 4), st.floats(0, 1), st.integers(1, 3))
def test_every_slot_sees_the_whole_batch_and_the_repeated_part_is_the_same(batch, inputs, repetition, times):
    orders = slot_orders(batch, inputs, repetition, times)
    repeated = times if inputs > 1 else 1
    for order in orders:
        assert order.bincount(minlength=batch).tolist() == [repeated] * batch
    same = len(orders[0]) - round((1 - repetition) * len(orders[0]))
    for order in orders[1:]:
        assert order[len(order) - same :].tolist() == orders[0][len(order) - same :].tolist()


def test_without_repetition_slots_are_independent_and_with_it_they_are_equal():
    torch.manual_seed(0)
    first, second = slot_orders(1000, 2, 0.0)
    assert 0 <= (first == second).sum() < 10
    first, second = slot_orders(1000, 2, 1.0)
    assert first.equal(second)
    assert not first.equal(torch.arange(1000))


def test_weights_are_those_of_the_kept_exits_alone():
    ensemble = pl.convert(blocks(3), SAE(inputs=2, exits=2), example=torch.zeros(2, 6)).eval()
    ensemble.members.index.logits.data = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 1.0]])
    ensemble.members.index.temperature.fill_(0.5)
    expected = torch.cat([torch.tensor([2.0, 4.0]).softmax(0), torch.tensor([6.0, 2.0]).softmax(0)]) / 2
    assert ensemble.members.index.rows(training=False) == [(0, 1), (0, 2), (1, 0), (1, 2)]
    assert_close(ensemble.weights, expected)
    assert_close(ensemble.weights.sum(), torch.ones(()))


def test_exits_without_weight_are_no_rows_and_cost_nothing():
    torch.manual_seed(0)
    x = torch.randn(5, 6)
    ensemble = pl.convert(blocks(3), SAE(inputs=2, exits=2), example=torch.zeros(2, 6)).eval()
    alive = pl.cost(ensemble.freeze(), x).multiply_adds
    ensemble.members.index.logits.data = torch.tensor([[0.0, 0.9, 2.0], [3.0, 0.0, 2.9]])
    before = ensemble.predict(x).probabilities
    ensemble.members.index.temperature.fill_(0.01)
    assert ensemble.members.index.rows(training=False) == [(0, 2), (1, 0), (1, 2)]
    assert ensemble(x).shape == ensemble.freeze()(x).shape == (3, 5, 2)
    assert_close(ensemble.weights.sum(), torch.ones(()))
    assert pl.cost(ensemble.freeze(), x).multiply_adds < alive
    assert not torch.equal(ensemble.predict(x).probabilities, before)
    assert_close(ensemble.freeze().predict(x).probabilities, ensemble.predict(x).probabilities)


def test_the_first_rows_alone_count_among_themselves():
    ensemble = pl.convert(blocks(3), SAE(inputs=1, exits=3), example=torch.zeros(2, 6))
    ensemble.members.index.logits.data = torch.tensor([[0.0, 1.0, 2.0]])
    assert_close(ensemble.nested_weights(2), torch.tensor([0.0, 1.0, -torch.inf]).softmax(0))
    assert_close(ensemble.nested_weights(3), ensemble.weights)
    with pytest.raises(pl.SettingError, match="draws must be at most 3, got 4"):
        ensemble.nested_weights(4)


def test_rows_of_training_are_all_pairs_and_those_of_eval_mode_the_kept_ones():
    ensemble = pl.convert(blocks(3), SAE(inputs=2, exits=1), example=torch.zeros(2, 6))
    x = torch.randn(5, 6)
    assert ensemble.train()(x).shape == (6, 5, 2)
    ensemble.eval().members.index.logits.data[0, 0] = 1.0
    everything = ensemble(x, members=[(slot, depth) for slot in range(2) for depth in range(3)])
    assert_close(ensemble(x), everything[[0, 5]])
    assert_close(ensemble(x, members=[1, (0, 0)]), everything[[5, 0]])


@pytest.mark.parametrize("pair", [(0, 3), (2, 0), (-1, 0), (0,)])
def test_pairs_that_do_not_exist_are_refused(pair):
    ensemble = pl.convert(blocks(3), SAE(), example=torch.zeros(2, 6)).eval()
    with pytest.raises(InputError, match="a depth below 3"):
        ensemble(torch.zeros(2, 6), members=[pair])


def test_logits_are_where_the_network_is():
    elsewhere = Pairs(2, 3, 1, torch.empty(0, dtype=torch.float16, device="meta"), learnt=True)
    assert elsewhere.logits.device == elsewhere.temperature.device == torch.device("meta")
    assert elsewhere.logits.dtype == elsewhere.temperature.dtype == torch.float16


def test_learnt_preferences_are_read_and_fixed_ones_are_not():
    learnt = pl.convert(blocks(3), SAE(inputs=1), example=torch.zeros(2, 6)).members.index.readings()
    assert learnt == pytest.approx({f"preference_1_{depth}": 1 / 3 for depth in (1, 2, 3)})
    assert pl.convert(blocks(3), EarlyExit(), example=torch.zeros(2, 6)).members.index.readings() == {}


def test_a_shrunk_ensemble_keeps_its_pairs_whatever_is_learnt():
    ensemble = pl.convert(blocks(3), SAE(inputs=2, exits=2), example=torch.zeros(2, 6)).eval()
    x = torch.randn(4, 6)
    outputs, small = ensemble(x), ensemble.shrink([3, 0])
    small.members.index.logits.data.normal_()
    assert_close(small(x), outputs[[3, 0]])
    assert_close(small.weights, torch.full((2,), 0.5))


def test_convolutions_behind_the_deepest_exit_that_is_used_are_gone_when_frozen():
    x, network = torch.randn(2, 1, 4, 4), vgg(2, 1, planes=(2, 3, 4), layers=(1, 1, 1), pooling=(0, 0, 0))
    ensemble = pl.convert(network, SAE(inputs=1, exits=1), example=x).eval()
    ensemble.members.index.logits.data[0, 0] = 1.0
    frozen = ensemble.freeze()
    assert_close(frozen(x), ensemble(x), atol=1e-5, rtol=1e-5)
    first, reshaping, head = 16 * 9 * 2, 16 * 2 * 4, 4 * 2
    assert pl.cost(frozen, x).multiply_adds == 2 * (first + reshaping + head)


def test_rows_that_do_not_count_count_alike_among_themselves():
    weights = torch.tensor([0.0, 0.5, 0.5, 0.0])
    assert share_among(weights, [3, 0]).tolist() == [0.5, 0.5]
    assert share_among(weights, [3, 1]).tolist() == [0, 1]


def test_a_shrunk_ensemble_is_frozen_with_its_rows_alone():
    ensemble = pl.convert(blocks(3), SAE(inputs=2, exits=2), example=torch.zeros(2, 6)).eval()
    small, x = ensemble.shrink([2, 1]), torch.randn(4, 6)
    frozen = small.freeze()
    assert_close(frozen(x), small(x))
    assert_close(frozen.weights, small.weights)


EXITS = [SAE(inputs=2, exits=2), EarlyExit(), MIMO(inputs=3), MIMMO(inputs=2)]


@pytest.mark.parametrize("method", EXITS, ids=str)
@pytest.mark.parametrize("rows", [[0], [2, 1]])
def test_a_shrunk_ensemble_holds_what_its_rows_need_and_goes_on_training(method, rows, tmp_path):
    torch.manual_seed(0)
    x, y = torch.randn(5, 6), torch.arange(5) % 2
    ensemble = pl.convert(blocks(3), method, example=x).eval()
    ensemble.members.index.logits.data.normal_()
    expected, pairs = ensemble(x)[rows], [ensemble.members.index.kept[row] for row in rows]
    small = ensemble.shrink(rows)
    assert_close(small(x), expected)
    depths, output = {depth for _, depth in pairs}, ensemble.members.index.depths - 1
    layers = 3 if output in depths else max(depths) + 1
    first, block, head, row = (6 * ensemble.members.index.inputs + 1) * 8, 9 * 8, 9 * 8 + 16, 9 * 2
    held = first + layers * block + len(depths - {output}) * head + len(rows) * row
    assert pl.cost(small, x).parameters == held
    small.train().loss(x, y).backward()
    assert all((p.grad is not None) == (p.numel() > 0) == p.requires_grad for p in small.parameters())
    small.eval().save(tmp_path / "small")
    loaded = pl.load(tmp_path / "small", blocks(3), example=x).eval()
    assert_close(loaded(x), small(x), rtol=0, atol=0)
    assert_close(loaded.weights, small.weights, rtol=0, atol=0)
    assert loaded.shrunk_to == tuple(rows)


def test_a_file_that_was_shrunk_to_rows_that_do_not_exist_is_refused(tmp_path):
    small = pl.convert(blocks(3), SAE(), example=torch.zeros(2, 6)).shrink([3, 0])
    small.shrunk_to = (9, 0)
    small.save(tmp_path / "odd")
    with pytest.raises(InputError, match=r"positions from 0 to 3, at least one, got \[9, 0\]"):
        pl.load(tmp_path / "odd", blocks(3), example=torch.zeros(2, 6))


def test_a_shrunk_ensemble_learns_by_the_weights_of_its_rows():
    torch.manual_seed(0)
    ensemble = pl.convert(blocks(3), SAE(inputs=1, exits=3), example=torch.zeros(2, 6))
    ensemble.members.index.logits.data = torch.tensor([[0.0, 1.0, 2.0]])
    x, y, small = torch.randn(5, 6), torch.arange(5) % 2, ensemble.shrink([2, 0]).train()
    losses = torch.stack([nn.functional.cross_entropy(one, y) for one in small(x)])
    assert_close(small.loss(x, y), (losses * torch.tensor([2.0, 0.0]).softmax(0)).sum())


def test_statistics_behind_the_deepest_exit_are_gone_in_a_shrunk_ensemble():
    middle = [nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(3)]
    network = nn.Sequential(nn.Linear(6, 8), *middle, nn.Linear(8, 2))
    small = pl.convert(network, EarlyExit(), example=torch.zeros(2, 6)).shrink([1])
    names = [name for name, value in small.state_dict().items() if "running_mean" in name and len(value)]
    left = ("network.1.1", "network.2.1", "heads.1.features.1")
    assert names == [f"members.tensors.shared.{norm}.running_mean" for norm in left]


def test_a_frozen_layer_stays_frozen_in_a_shrunk_ensemble():
    ensemble = pl.convert(blocks(3), EarlyExit(), example=torch.zeros(2, 6))
    dict(ensemble.named_parameters())["members.tensors.shared.network.0.weight"].requires_grad_(False)
    small = dict(ensemble.shrink([1]).named_parameters())
    frozen = [name for name, p in small.items() if p.numel() and not p.requires_grad]
    assert frozen == ["members.tensors.shared.network.0.weight"]


class Typed(nn.Module):
    """Asks its last layer for its precision before all others run; checkpoints its blocks in training."""

    def __init__(self):
        super().__init__()
        self.layers = blocks(3)

    def forward(self, x):
        x = self.layers[0](x.to(self.layers[-1].weight.dtype))
        if self.training:
            return self.layers[4](torch.utils.checkpoint.checkpoint(self.layers[1:4], x, use_reentrant=True))
        return self.layers[1:](x)


def test_code_may_ask_layers_that_are_gone_for_their_precision():
    ensemble, x = pl.convert(Typed(), EarlyExit(), example=torch.zeros(2, 6)).eval(), torch.randn(4, 6)
    expected, small = ensemble(x)[[0]], ensemble.shrink([0])
    for one in (small, small.freeze(), ensemble.shrink([0, 1]).shrink([0])):
        assert_close(one(x), expected)
    assert_close(ensemble.member(0)(x), expected[0])


def test_a_run_that_cannot_end_where_layers_are_gone_is_refused():
    small = pl.convert(Typed(), EarlyExit(), example=torch.zeros(2, 6)).shrink([0]).train()
    with pytest.raises(InputError, match=r"must end at layers.1, .*it is inside of .*use_reentrant=False"):
        small(torch.randn(4, 6))


def test_weights_of_half_precision_sum_to_one():
    ensemble = pl.convert(blocks(3).bfloat16(), SAE(inputs=1, exits=3), example=torch.zeros(2, 6).bfloat16())
    for one in (ensemble, ensemble.shrink([0, 1, 2]), ensemble.freeze()):
        assert_close(one.weights.sum(), torch.ones(()))


def test_exits_are_removed_and_the_first_layer_is_one_when_frozen():
    torch.manual_seed(0)
    ensemble = pl.convert(blocks(4), SAE(inputs=2, exits=1), example=torch.zeros(2, 6)).eval()
    ensemble.members.index.logits.data[:, 1] = 1.0
    x, frozen = torch.randn(5, 6), ensemble.freeze()
    assert_close(frozen(x), ensemble(x), atol=1e-5, rtol=1e-5)
    assert_close(ensemble.member(1)(x), ensemble(x)[1])
    first, block, head = 6 * 8, 8 * 8, 8 * 8 + 8 * 2 * 2
    assert pl.cost(frozen, x).multiply_adds == 5 * (first + 2 * block + head)
    biases = 8 + 2 * 8 + 8 + 2 * 2
    assert pl.cost(frozen, x).parameters == first + 2 * block + head + biases


def test_more_exits_than_depths_are_refused_with_their_names():
    with pytest.raises(SettingError, match=r"exits must be at most 3, .*\(1, 2\), got exits=4"):
        pl.convert(blocks(3), SAE(exits=4), example=torch.zeros(2, 6))
    with pytest.raises(SettingError, match=r"exits must be at most 3.* got exits=4"):
        pl.convert(blocks(3), EarlyExit(exits=4), example=torch.zeros(2, 6))


@pytest.mark.parametrize("method", [SAE(), EarlyExit(), MIMMO()], ids=str)
def test_a_network_of_one_layer_has_no_place_to_exit(method):
    with pytest.raises(ConversionError, match="a place to exit before the output must be found"):
        pl.convert(nn.Linear(3, 2), method, example=torch.zeros(2, 3))


def test_layers_cannot_be_picked():
    with pytest.raises(ConversionError, match=r"layers cannot be picked.*where="):
        pl.convert(blocks(3), MIMO(), example=torch.zeros(2, 6), include="0")


def test_the_conversion_names_the_exits():
    ensemble = pl.convert(blocks(3), SAE(), example=torch.zeros(2, 6))
    assert ensemble.conversion.notes == ("exit 1 after 1", "exit 2 after 2", "exit 3 is the network's output")
    assert ensemble.conversion["0"].became == "takes 2 inputs"
    assert ensemble.conversion["4"].became == "answers for 2 inputs"


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = blocks(3)

    def forward(self, x, mask):
        return self.layers[3:](self.layers[:3](x) * mask)


def test_the_conversion_says_whose_mask_is_read():
    example = (torch.zeros(2, 6), torch.ones(2, 8))
    note = "mask: behind the first layers, that of the first slot for all"
    assert note in pl.convert(Masked(), MIMO(inputs=2), example=example).conversion.notes
    assert note not in pl.convert(Masked(), EarlyExit(), example=example).conversion.notes


def test_an_ensemble_is_of_the_network_it_was_made_from():
    ensemble = pl.convert(Masked(), EarlyExit(), example=(torch.zeros(2, 6), torch.ones(2, 8)))
    assert ensemble.network_name == "Masked"
    assert ensemble.conversion.title.endswith("on Masked")


def test_batches_of_a_loader_are_read_as_the_network_takes_them():
    x, mask, y = torch.randn(4, 6), torch.rand(4, 8), torch.arange(4) % 2
    ensemble = pl.convert(Masked(), SAE(), example=(x, mask)).eval()
    expected = ensemble.predict((x, mask)).probabilities
    assert_close(ensemble.predict([(x, mask, y)]).probabilities, expected)
    assert_close(ensemble.predict([{"x": x, "mask": mask, "number": y}]).probabilities, expected)
    assert_close(ensemble.predict([[x, mask]]).probabilities, expected)


class Tied(nn.Module):
    """One layer between input and output: nowhere to exit, and nothing that could be widened twice."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x)


def test_mimo_is_recommended_only_where_it_converts():
    two = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.randn(4, 6)
    for method in (SAE(), EarlyExit()):
        with pytest.raises(ConversionError, match="such as BatchEnsemble") as refused:
            pl.convert(Tied(), method, example=x)
        assert "MIMO" not in str(refused.value)
    with pytest.raises(ConversionError):
        pl.convert(Tied(), MIMO(), example=x)
    assert pl.convert(two, MIMO(), example=x)


def flattening():
    """A network in the shape of AlexNet and VGG: wide layers behind a flattened image."""
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(16 * 8 * 8, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 4))


def notes_of_cost(ensemble):
    return [note for note in ensemble.conversion.notes if "exits cost" in note]


def test_heads_of_a_network_that_flattens_have_the_channels_of_its_last_image():
    x = torch.randn(2, 3, 32, 32)
    narrow = pl.convert(flattening(), EarlyExit(where=("1", "5")), example=x).eval()
    wide = pl.convert(flattening(), EarlyExit(where=("1", "5"), heads="wide"), example=x).eval()
    found = [head.features[0].out_channels for head in narrow.members.code.caller.module.heads]
    assert found == [16, 16]
    plain = pl.cost(flattening(), x).multiply_adds
    assert pl.cost(narrow, x).multiply_adds <= 1.2 * plain
    assert notes_of_cost(narrow) == []
    (note,) = notes_of_cost(wide)
    assert note.startswith(f"exits cost {pl.cost(wide, x).multiply_adds / plain - 1:.1f} × the network")


@pytest.mark.parametrize("method", [EarlyExit(), MIMMO(), SAE()], ids=str)
def test_heads_of_earlier_files_stay_wide(method):
    before = method.to_dict()
    del before["heads"]
    assert pl.Method.from_dict(before | {"version": 1}).heads == "wide"
    assert pl.Method.from_dict(method.to_dict()) == method
