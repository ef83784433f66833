"""Layer Ensembles: combinations of options, special cases, priors with the same draw, shared norms."""

import functools
import itertools

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import ConversionError, InputError, SettingError
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.methods import DeepEnsembles, DeepSubEnsembles, LayerEnsembles
from tests import zoo
from tests.cases import CASES, case_named, each, run, seeded


def chain(depth=3, width=5):
    sizes = [6, *[width] * (depth - 1), 3]
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).double()


X = torch.randn(7, 6, dtype=torch.float64, generator=seeded(0))
Y = torch.arange(7) % 3


@pytest.mark.parametrize(("options", "depth"), [(2, 3), (3, 2), (5, 1)])
def test_all_combinations_are_rows_in_lexicographic_order(options, depth):
    ensemble = pl.convert(chain(depth), LayerEnsembles(options=options)).eval()
    rows = list(itertools.product(range(options), repeat=depth))
    assert len(ensemble(X)) == options**depth == len(rows)
    assert_close(ensemble(X, members=rows), ensemble(X), rtol=0, atol=0)


def test_a_member_is_the_network_with_the_chosen_layers():
    model = chain()
    ensemble = pl.convert(model, LayerEnsembles(options=3, prior_scale=0.0)).eval()
    own = named_tensors(ensemble.members.tensors.own)
    assert ensemble.sites == ("0", "2", "4")
    for row in [(0, 1, 2), (2, 2, 0)]:
        x = X
        for layer, option in zip((0, 2, 4), row, strict=True):
            x = nn.functional.linear(x, own[f"{layer}.weight"][option], own[f"{layer}.bias"][option])
            x = x.tanh() if layer < 4 else x
        assert_close(ensemble(X, members=[row])[0], x)


def test_named_members_may_repeat_and_keep_their_order():
    ensemble = pl.convert(chain(), LayerEnsembles(options=2)).eval()
    rows = [(1, 0, 1), (0, 0, 0), (1, 0, 1), 7]
    assert_close(ensemble(X, members=rows), ensemble(X)[[5, 0, 5, 7]])  # other batches round otherwise


def test_more_combinations_than_draws_keep_different_ones():
    ensemble = pl.convert(chain(), LayerEnsembles(options=5, draws=20)).eval()
    kept = ensemble.members.index.kept
    assert kept.shape == (20, 3)
    assert len(kept.unique(dim=0)) == 20
    assert_close(ensemble(X, members=kept.tolist()), ensemble(X), rtol=0, atol=0)
    assert ensemble(X, draws=6).shape == (6, 7, 3)
    assert not torch.equal(ensemble(X, draws=6), ensemble(X, draws=6))


def test_training_draws_members_afresh_for_every_step():
    ensemble = pl.convert(chain(), LayerEnsembles(options=4, train_draws=3)).train()
    assert ensemble(X).shape == (3, 7, 3)
    assert not torch.equal(ensemble(X), ensemble(X))
    torch.manual_seed(5)
    rows = ensemble.members.index.rows(training=True)
    expected = torch.stack([nn.functional.cross_entropy(ensemble(X, members=[row])[0], Y) for row in rows])
    torch.manual_seed(5)
    assert_close(ensemble.loss(X, Y), expected.mean())


@each(CASES, few=True)
@pytest.mark.sampled(4)
def test_equal_choices_in_all_layers_are_the_deep_ensemble(case):
    """§III: K networks with none of their options in common."""
    deep, layered = (
        pl.convert(case.model(), method, seed=3).eval()
        for method in (DeepEnsembles(2, prior_scale=0.7), LayerEnsembles(2, prior_scale=0.7, draws=1))
    )
    rows = [(k,) * len(layered.sites) for k in range(2)]
    chosen = run(functools.partial(layered, members=rows), case.inputs())
    assert_close(chosen, run(deep, case.inputs()), rtol=0, atol=0)


def test_one_option_for_the_first_layers_is_the_deep_sub_ensemble():
    model = chain()
    overrides = {name: {"options": 1, "start": "copy"} for name in ("0", "2")}
    layered = pl.convert(model, LayerEnsembles(4, prior_scale=0.0), overrides=overrides, seed=2).eval()
    sub = pl.convert(model, DeepSubEnsembles(4, trunk=("0", "2")), seed=2).eval()
    assert tuple(layered.members.tensors.sizes.values()) == (1, 1, 4)
    assert_close(layered(X), sub(X), rtol=0, atol=0)


def test_the_number_of_options_may_differ_from_layer_to_layer():
    ensemble = pl.convert(chain(), LayerEnsembles(options=3), overrides={"2": {"options": 1}}).eval()
    assert tuple(ensemble.members.tensors.sizes.values()) == (3, 1, 3)
    assert ensemble(X).shape == (9, 7, 3)
    assert ensemble.conversion["2"].became == "1 option, start fresh"
    assert ensemble.conversion["4"].became == "3 options, start fresh"
    assert_close(ensemble(X, members=[(2, 0, 1)])[0], ensemble(X)[7], rtol=0, atol=0)


@pytest.mark.parametrize("build", [zoo.mlp, zoo.residual_cnn])
def test_weights_are_those_of_a_deep_ensemble_of_as_many_networks_norms_aside(build):
    model = build()
    ensemble = pl.convert(model, LayerEnsembles(options=4, prior_scale=0.0))
    norms = [layer for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)]
    in_norms = sum(p.numel() for norm in norms for p in norm.parameters())
    whole = sum(p.numel() for p in model.parameters())
    assert sum(p.numel() for p in ensemble.parameters()) == 4 * (whole - in_norms) + in_norms


def test_norms_and_with_a_setting_their_statistics_are_shared_by_the_options_of_a_layer():
    case = case_named("residual_cnn")
    method = LayerEnsembles(options=3, train_draws=4, statistics="shared")
    ensemble = pl.convert(case.model(), method).train()
    assert ensemble.conversion["1"].reason == "norm"
    assert {"1.weight", "1.bias", "1.running_mean"} <= set(named_tensors(ensemble.members.tensors.shared))
    before = ensemble.members.tensors.shared.get_buffer("1.running_mean").clone()
    ensemble(case.inputs())
    assert ensemble.members.tensors.shared.get_buffer("1.num_batches_tracked") == 1
    assert not torch.equal(ensemble.members.tensors.shared.get_buffer("1.running_mean"), before)


def test_the_prior_has_the_same_draw_and_no_gradient():
    ensemble = pl.convert(chain(), LayerEnsembles(options=3, prior_scale=0.5), seed=1)
    plain = pl.convert(chain(), LayerEnsembles(options=3, prior_scale=0.0), seed=1)
    plain.load_state_dict({n: v for n, v in ensemble.state_dict().items() if ".prior." not in n})
    rows, prior = [(0, 1, 2), (2, 2, 0)], ensemble.members.prior
    added = torch.stack([prior.as_module(row)(X) for row in rows])
    assert_close(ensemble.eval()(X, members=rows), plain.eval()(X, members=rows) + 0.5 * added)
    assert not torch.equal(added[0], added[1])
    ensemble.train().loss(X, Y).backward()
    assert all(p.grad is None and not p.requires_grad for p in prior.parameters())
    assert_close(ensemble.eval().member(5)(X), ensemble(X)[5])


def test_tied_layers_choose_together():
    ensemble = pl.convert(case_named("tied_embedding").model(), LayerEnsembles(options=2))
    assert {row.names[0] for row in ensemble.conversion.converted} == {"0", "1", "4"}
    assert ensemble.sites == ("0", "1")
    assert ensemble.members.tensors.keys((1, 0))["0.weight"] == 1
    assert ensemble.members.tensors.keys((1, 0))["4.bias"] == 1


def test_tied_layers_with_different_settings_are_refused():
    with pytest.raises(ConversionError, match=r"layers that hold 0\.weight must have the same options"):
        pl.convert(zoo.tied_embedding(), LayerEnsembles(), overrides={"0": {"options": 2}})


def test_a_network_of_norms_alone_is_refused():
    model = nn.Sequential(nn.BatchNorm1d(6), nn.LayerNorm(6))
    with pytest.raises(ConversionError, match="a trained layer that is no norm"):
        pl.convert(model, LayerEnsembles())


def test_options_that_nobody_draws_get_no_step_but_all_are_trained_in_the_end():
    torch.manual_seed(0)
    ensemble = pl.convert(chain(), LayerEnsembles(options=3, train_draws=1)).train()
    before = {name: p.detach().clone() for name, p in ensemble.members.tensors.own.named_parameters()}
    optimizer = torch.optim.SGD(ensemble.parameters(), lr=0.1)
    moved = torch.zeros(3, 3, dtype=torch.bool)
    for step in range(30):
        optimizer.zero_grad()
        ensemble.loss(X, Y).backward()
        optimizer.step()
        for site, name in enumerate(("0.weight", "2.weight", "4.weight")):
            now = dict(ensemble.members.tensors.own.named_parameters())[name]
            moved[site] = (now != before[name]).flatten(1).any(1)
        if step == 0:
            assert moved.sum(1).tolist() == [1, 1, 1]
    assert moved.all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": 0}, "options must be at least 1, got 0"),
        ({"prior_scale": -1.0}, "prior_scale must be at least 0"),
        ({"draws": 0}, "draws must be"),
        ({"train_draws": 2.5}, "train_draws must be"),
        ({"start": "cold"}, "start must be one of 'fresh', 'copy'"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    with pytest.raises(SettingError, match=message):
        LayerEnsembles(**settings)


def test_members_and_draws_exclude_each_other():
    ensemble = pl.convert(chain(), LayerEnsembles(options=2))
    with pytest.raises(InputError, match="exclude each other"):
        ensemble(X, members=[(0, 0, 0)], draws=2)


class Residual(nn.Module):
    """A norm that two layers feed, and one that one layer feeds."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)
        self.layer, self.after, self.last = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 2)

    def forward(self, x):
        stem = self.stem(x)
        return self.last(self.after(stem + self.layer(self.norm(stem).relu())).relu())


def settled(method, x, steps=200):
    torch.manual_seed(0)
    ensemble = pl.convert(Residual().double(), method, example=x).train()
    for _ in range(steps):
        ensemble(x)
    return ensemble


def mode_gap(ensemble, x):
    """How far eval mode is from train mode, over all combinations."""
    rows = list(ensemble.eval().members.index.rows(training=False))
    with torch.no_grad():
        return float((ensemble(x) - ensemble.train()(x, members=rows)).abs().max())


def test_statistics_follow_the_options_that_feed_the_norm():
    """On the same data eval mode computes what train mode does, for every combination."""
    x = 3 * torch.randn(64, 4).double()
    ensemble = settled(LayerEnsembles(options=2, prior_scale=0.0, train_draws=4), x)
    assert len(ensemble.members.tensors.own.norm.running_mean) == 2
    assert len(ensemble.members.tensors.own.after.running_mean) == 4
    assert ensemble.conversion["after"].became == "shared, with 4 running statistics"
    assert mode_gap(ensemble, x) < 0.05
    shared = settled(LayerEnsembles(options=2, prior_scale=0.0, train_draws=4, statistics="shared"), x)
    assert mode_gap(shared, x) > 0.2


def test_too_many_combinations_leave_statistics_of_the_last_layer(monkeypatch):
    monkeypatch.setattr("pluribus.methods.layer_ensembles.MOST_COMBINATIONS", 8)
    x = torch.randn(16, 4).double()
    ensemble = pl.convert(Residual().double(), LayerEnsembles(options=3, prior_scale=0.0), example=x)
    assert len(ensemble.members.tensors.own.after.running_mean) == 3
    first, second = (0, 1, 2), (2, 1, 0)
    choices = ensemble.members.tensors.keys
    assert choices(first)["after.running_mean"] == choices(second)["after.running_mean"] == 1


def test_a_shrunk_ensemble_keeps_the_statistics_of_its_combinations(tmp_path):
    x = torch.randn(16, 4).double()
    ensemble = settled(LayerEnsembles(options=3, prior_scale=0.0, train_draws=4), x, 20).eval()
    small = ensemble.shrink([5, 26, 14])
    assert_close(small(x), ensemble(x)[[5, 26, 14]])
    assert_close(small.freeze()(x), small(x))
    small.save(tmp_path / "small")
    assert_close(pl.load(tmp_path / "small", Residual().double(), example=x)(x), small(x))


def test_files_of_the_version_before_share_their_statistics():
    first = pl.Method.from_dict({"kind": "layer_ensembles", "version": 1})
    assert (first.statistics, first.settle_prior) == ("shared", False)
