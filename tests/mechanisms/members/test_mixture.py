"""The family of mixtures: assignments, weights of draws, and the methods that are cases of it (Table 2)."""

import itertools
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import SettingError
from pluribus.mechanisms.members import mixture as family
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.combinations import all_rows, choose_rows, keep_draws
from pluribus.mechanisms.members.index import Combinations, Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.mixed import Mixed
from pluribus.mechanisms.members.mixture import Mixture, draw_assignment, draw_each, mix, uniform
from pluribus.mechanisms.members.options import OptionTensors, draw_options
from pluribus.mechanisms.network.dry_run import derived_seed
from pluribus.mechanisms.network.network import Network
from pluribus.methods import ECMP, EMP, DeepEnsembles, DropConnect, LayerEnsembles, MCDropout, Single
from tests.cases import seeded

SITES = {"0": ["0.weight", "0.bias"], "2": ["2.weight", "2.bias"]}
X = torch.randn(7, 4, dtype=torch.float64, generator=seeded(0))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()


def bank(kind, mixture, draws=6, options=3, sites=SITES, seed=0):
    held = Network(network())
    wanted = {name: (options, "fresh") for names in sites.values() for name in names}
    own, _ = draw_options(held, wanted, seed=0)
    mixtures, code = dict.fromkeys(sites, mixture), PlainCode.of(held.module)
    if kind is Seeds:
        return Members(Seeds(draws, 2, seed), Mixed(held, own, sites, mixtures), code).eval()
    tensors, probabilities = OptionTensors(held, own, sites, mixtures), [mixture.probabilities] * len(sites)
    kept, shares = keep_draws(probabilities, draws, seeded(derived_seed(seed, 1)))
    shares = torch.tensor(shares, dtype=torch.float64)
    return Members(Combinations(tensors.sizes, kept, 2, shares, probabilities), tensors, code).eval()


def outputs(members):
    """Return the outputs of the members on X."""
    ensemble = pl.convert(network(), Single()).eval()
    ensemble.members = members
    return ensemble(X)


@pytest.mark.parametrize("probabilities", [(0.2, 0.8), (0.5, 0.3, 0.2), uniform(5)])
@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_elements_are_assigned_independently_and_as_probable_as_given(probabilities, rate):
    mixture = Mixture("element", probabilities, rate)
    drawn = draw_assignment(mixture, (200, 500), seeded(1))
    expected = torch.tensor([rate, *((1 - rate) * p for p in probabilities)])
    counts = torch.bincount((drawn + 1).flatten(), minlength=len(expected))
    spread = (counts / 1e5 - expected).abs() / (expected * (1 - expected) / 1e5).sqrt().clamp(min=1e-9)
    assert spread.max() < 4
    together = (drawn[:, :-1] == drawn[:, 1:]).double().mean().item()
    assert together == pytest.approx(expected.square().sum().item(), abs=0.01)


def test_what_is_assigned_at_once_takes_one_option():
    shapes = {"network": (1, 1), "layer": (1, 1), "unit": (1, 4), "element": (3, 4)}
    for assignment, shape in shapes.items():
        assert draw_assignment(Mixture(assignment, uniform(2)), (3, 4), seeded(0)).shape == shape


def test_mixed_tensors_have_the_numbers_of_their_options():
    options = torch.randn(3, 4, 5, generator=seeded(0), dtype=torch.float64)
    assignment = draw_assignment(Mixture("element", uniform(3)), (4, 5), seeded(1))
    expected = sum((assignment == k) * options[k] for k in range(3))  # Eq. (1)
    assert_close(mix(options, assignment), expected, rtol=0, atol=0)
    zeros = draw_assignment(Mixture("element", uniform(3), rate=0.5), (4, 5), seeded(1))
    expected = sum((zeros == k) * options[k] for k in range(3)) / 0.5
    assert_close(mix(options, zeros, rate=0.5), expected)
    assert (zeros == -1).any()


def test_zeros_leave_the_mean_what_it_is():
    options, mixture = torch.ones(1, 300, 300), Mixture("element", (1.0,), rate=0.3)
    drawn = mix(options, draw_assignment(mixture, (300, 300), seeded(0)), mixture.rate)
    assert drawn.mean().item() == pytest.approx(1, abs=0.01)


def test_few_rows_are_all_kept_with_their_probabilities():
    rows, shares = keep_draws([(0.2, 0.8), (0.5, 0.25, 0.25)], 6, seeded(0))
    assert rows == all_rows([2, 3])
    assert shares[rows.index((1, 2))] == pytest.approx(0.8 * 0.25)
    assert sum(shares) == pytest.approx(1)


def test_draws_from_all_rows_are_as_probable_as_these_and_nested():
    """Draws are read from a run of all rows, whatever the probabilities of the rows."""
    one = bank(Combinations, Mixture("layer", (0.5, 0.3, 0.2)), draws=9)
    assert_close(one.index.weights(20_000).double(), one.index.weights().double(), atol=0.01, rtol=0)
    counts = [one.index.weights(draws) * draws for draws in (1, 2, 7, 30)]
    assert [round(count.sum().item()) for count in counts] == [1, 2, 7, 30]
    assert_close(counts, [count.round() for count in counts])
    for fewer, more in itertools.pairwise(counts):
        assert (fewer <= more + 1e-6).all()


def test_more_draws_than_are_kept_are_refused():
    for one in (
        bank(Combinations, Mixture("layer", uniform(3)), draws=8),
        bank(Seeds, Mixture("element", uniform(3)), draws=8),
    ):
        with pytest.raises(SettingError, match="draws must be at most 8"):
            one.index.weights(9)


def test_equal_draws_are_one_row_with_the_weight_of_all():
    one = bank(Combinations, Mixture("layer", (0.8, 0.1, 0.1)), draws=8)
    kept = [tuple(row) for row in one.index.kept.tolist()]
    assert len(kept) == 8 > one.count == len(set(kept))
    assert one.index.rows(training=False) == list(dict.fromkeys(kept))
    counts = torch.tensor([kept.count(row) for row in one.index.rows(training=False)]).double()
    assert_close(one.index.weights(), counts / 8)


def test_weights_are_precise_where_the_network_is_not():
    one = bank(Combinations, Mixture("layer", uniform(3)), draws=7)
    expected, small = one.index.weights().float(), one.bfloat16().keep(range(one.count))
    assert_close(one.index.weights(), expected)
    assert small.index.shares.dtype == torch.bfloat16  # as its file is read


def test_the_first_draws_are_nested_in_all():
    one = bank(Combinations, Mixture("layer", uniform(3)), draws=8)
    kept = [tuple(row) for row in one.index.kept.tolist()]
    for draws in (1, 3, 8):
        counts = torch.tensor([kept[:draws].count(row) for row in one.index.rows(training=False)]).double()
        assert_close(one.index.weights(draws), counts / draws)
    seeds = bank(Seeds, Mixture("element", uniform(3)), draws=4)
    assert_close(seeds.index.weights(2), torch.tensor([0.5, 0.5, 0, 0]))


def test_a_shrunk_bank_keeps_weights_and_probabilities_in_proportion():
    one = bank(Combinations, Mixture("layer", (0.5, 0.3, 0.2)), draws=9)
    chosen = [i for i, row in enumerate(one.index.rows(training=False)) if row in ((0, 1), (2, 1), (2, 2))]
    small = one.keep(chosen)
    assert small.tensors.sizes == {"0": 2, "2": 2}
    assert_close(small.index.weights(), one.index.weights()[chosen] / one.index.weights()[chosen].sum())
    assert small.tensors.probabilities()["0.bias"] == pytest.approx((0.5 / 0.7, 0.2 / 0.7))
    for kept, before in zip(
        small.tensors.of(small.index.rows(training=False)),
        one.tensors.of([one.index.rows(training=False)[i] for i in chosen]),
        strict=True,
    ):
        assert_close(kept, before, rtol=0, atol=0)


@pytest.mark.parametrize("draws", [9, 40])
def test_another_state_may_have_another_number_of_different_rows(draws):
    one, other = (bank(Combinations, Mixture("layer", uniform(3)), draws=draws, seed=s) for s in (0, 1))
    other.load_state_dict(one.state_dict())
    assert other.index.rows(training=False) == one.index.rows(training=False)
    assert_close(other.index.weights(), one.index.weights())


def test_a_seed_gives_the_same_row_in_every_precision():
    one = bank(Seeds, Mixture("element", uniform(3), rate=0.2, noise=0.1))
    double = [dict(row) for row in one.tensors.of(one.index.rows(training=False))]
    single = [dict(row) for row in one.float().tensors.of(one.index.rows(training=False))]
    for a, b in zip(double, single, strict=True):
        assert_close({name: t.float() for name, t in a.items()}, b)


def test_a_seed_gives_the_same_row_whatever_the_defaults_of_torch_are():
    one = bank(Seeds, Mixture("element", uniform(3), rate=0.2, noise=0.1), draws=1)
    expected, rows = (
        next(one.tensors.of(one.index.rows(training=False))),
        choose_rows([uniform(3)] * 2, 9, seeded(0)),
    )
    family._edges.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        assert_close(next(one.tensors.of(one.index.rows(training=False))), expected, rtol=0, atol=0)
        with torch.device("meta"):
            assert choose_rows([uniform(3)] * 2, 9, seeded(0)) == rows
    finally:
        torch.set_default_dtype(torch.float32)


def test_noise_is_added_to_every_number_by_itself():
    quiet, noisy = (bank(Seeds, Mixture("layer", uniform(3), noise=n), draws=400) for n in (0.0, 0.5))
    rows = quiet.index.rows(training=False)
    added = [
        torch.cat([(b[name] - a[name]).flatten() for name in ("2.weight", "2.bias")])
        for a, b in zip(quiet.tensors.of(rows), noisy.tensors.of(rows), strict=True)
    ]
    covariance = torch.stack(added).T.cov()
    assert_close(covariance, 0.25 * torch.eye(18, dtype=torch.float64), atol=0.07, rtol=0)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_each_sample_takes_one_option_of_a_layer_or_one_for_every_element(noise):
    options = {
        name: 10.0 * torch.arange(1, 4).view(3, *[1] * len(shape)).expand(3, *shape)
        for name, shape in (("weight", (4, 5)), ("bias", (4,)))
    }
    torch.manual_seed(0)
    layer = draw_each(options, Mixture("layer", (0.5, 0.3, 0.2), noise=noise), 3000)
    taken = (layer["weight"].as_subclass(torch.Tensor) / 10).round()
    share = torch.bincount(taken[:, 0, 0].long(), minlength=4) / 3000
    assert_close(share[1:], torch.tensor([0.5, 0.3, 0.2]), atol=0.03, rtol=0)
    assert (taken == taken[:, :1, :1]).all()
    assert torch.equal((layer["bias"].as_subclass(torch.Tensor) / 10).round(), taken[:, :, 0])
    element = draw_each(options, Mixture("element", (0.5, 0.3, 0.2), noise=noise), 3000)["weight"]
    taken = (element.as_subclass(torch.Tensor) / 10).round()
    shares = torch.stack([(taken == k).double().mean(0) for k in (1, 2, 3)])
    assert_close(
        shares, torch.tensor([0.5, 0.3, 0.2]).double().view(3, 1, 1).expand(3, 4, 5), atol=0.05, rtol=0
    )
    together = (taken[:, 0, 0] == taken[:, 0, 1]).double().mean().item()
    assert together == pytest.approx(0.38, abs=0.04)  # neighbours choose independently
    added = element.as_subclass(torch.Tensor) - 10 * taken
    assert added.std(0).flatten().tolist() == pytest.approx([noise] * 20, rel=0.1)  # over samples


def test_elements_of_all_tensors_are_assigned_independently():
    """Eq. (5): also those of a weight and a bias of one layer, and those of two layers."""
    one = bank(Seeds, Mixture("element", uniform(2)), draws=2000, options=2)
    own = one.tensors.parts()[1]
    taken = torch.stack(
        [
            torch.cat([(row[name] == own[name][1]).flatten() for name in own])
            for row in one.tensors.of(one.index.rows(training=False))
        ]
    )
    correlations = taken.double().T.corrcoef()
    assert (correlations - torch.eye(len(correlations))).abs().max() < 0.12


def test_elements_of_each_sample_may_be_zero():
    torch.manual_seed(0)
    drawn = draw_each({"weight": torch.ones(1, 50)}, Mixture("element", (1.0,), rate=0.25), 400)["weight"]
    values = drawn.as_subclass(torch.Tensor)
    assert_close(values.unique(), torch.tensor([0, 4 / 3]))
    assert (values == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)


def test_zero_is_an_option_of_each_sample_too():
    options = {"weight": torch.tensor([[3.0, 6.0], [9.0, 12.0]]), "bias": torch.tensor([3.0, 9.0])}
    torch.manual_seed(0)
    layer = draw_each(options, Mixture("layer", uniform(2), rate=0.25), 2000)
    weight, bias = (layer[name].as_subclass(torch.Tensor) for name in options)
    rows = torch.tensor([[0.0, 0, 0], [4, 8, 4], [12, 16, 12]])  # zero, or an option over 0.75
    counts = (torch.column_stack((weight, bias))[:, None] == rows).all(2).sum(0)
    assert counts.sum() == 2000
    assert_close(counts / 2000, torch.tensor([0.25, 0.375, 0.375]), atol=0.04, rtol=0)


def test_one_option_for_the_network_is_the_explicit_ensemble():
    """Table 2, third column: Z is the same for all weights and biases."""
    one = bank(Seeds, Mixture("network", uniform(3)), draws=12)
    deep = pl.convert(network(), DeepEnsembles(3), seed=0).eval()
    deep.members.load_state_dict({n: t for n, t in one.state_dict().items() if n != "index.seeds"})
    found, members = outputs(one), deep(X)
    taken = [next(k for k in range(3) if torch.equal(row, members[k])) for row in found]
    assert set(taken) == {0, 1, 2}


def test_one_option_for_a_layer_is_the_layer_ensemble():
    one = bank(Seeds, Mixture("layer", uniform(3)), draws=12)
    layers = pl.convert(network(), LayerEnsembles(3, prior_scale=0.0), seed=0).eval()
    own = {n: t for n, t in one.state_dict().items() if n.startswith("tensors.own")}
    layers.load_state_dict({f"members.{n}": t for n, t in own.items()}, strict=False)
    members = layers(X, members=all_rows((3, 3)))
    distances = (outputs(one).unsqueeze(1) - members).abs().amax((2, 3))
    assert distances.amin(1).max() < 1e-12  # every row is one of the nine
    assert len(distances.argmin(1).unique()) > 3


def test_one_option_for_a_patched_layer_is_emp():
    emp = pl.convert(network(), EMP(3, where="output", start="fresh", perturbation=0.0)).eval()
    one = bank(Seeds, Mixture("layer", uniform(3)), draws=12, sites={"2": SITES["2"]})
    one.load_state_dict({n: t for n, t in emp.members.state_dict().items() if n in one.state_dict()}, False)
    distances = (outputs(one).unsqueeze(1) - emp(X)).abs().amax((2, 3))
    assert distances.amin(1).max() < 1e-12


def test_one_option_for_an_element_is_ecmp():
    ecmp = pl.convert(network(), ECMP(3, where=("0", "2"), draws=6, start="fresh")).eval()
    one = bank(Seeds, Mixture("element", uniform(3)))
    one.load_state_dict(ecmp.members.state_dict())
    assert_close(outputs(one), ecmp(X))


def with_weights_alone(assignment, rate):
    """One option and zero for every weight; biases are kept."""
    sites = {"0": ["0.weight"], "2": ["2.weight"]}
    one = bank(Seeds, Mixture(assignment, (1.0,), rate), options=1, sites=sites)
    one.tensors.parts()[1]["0.weight"].data.copy_(network()[0].weight.data[None])
    one.tensors.parts()[1]["2.weight"].data.copy_(network()[2].weight.data[None])
    return one


def test_zero_for_an_input_unit_is_dropout():
    """Table 2, first column, mask for mask."""
    dropout = pl.convert(network(), MCDropout(rate=0.4, draws=6), example=X).eval()
    one = with_weights_alone("unit", 0.4)
    one.index.seeds = dropout.members.index.seeds
    assert_close(outputs(one), dropout(X))


def test_zero_for_an_element_is_drop_connect():
    """Table 2, second column."""
    connect = pl.convert(network(), DropConnect(rate=0.4, draws=6)).eval()
    one = with_weights_alone("element", 0.4)
    one.index.seeds = connect.members.index.seeds
    assert_close(outputs(one), connect(X))


def test_effective_sizes_are_products_over_what_is_assigned():
    """Table 3: K, K^N and K to the number of elements."""
    two = {"0": ["0.weight"]}
    one = bank(Seeds, Mixture("element", uniform(2)), draws=3000, options=2, sites=two)
    masks = {
        tuple(row["0.weight"].flatten().tolist())
        for row in itertools.islice(one.tensors.of(one.index.rows(training=False)), 3000)
    }
    assert len(masks) > 2900  # of 2^20
    layers = bank(Seeds, Mixture("layer", uniform(2)), draws=60, options=2)
    rows = {
        tuple(t.sum().item() for t in row.values())
        for row in layers.tensors.of(layers.index.rows(training=False))
    }
    assert len(rows) == math.prod((2, 2))
