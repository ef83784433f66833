"""Method: what holds for single layers, and what is refused before anything is changed."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus import methods
from pluribus.errors import ConversionError, SettingError
from pluribus.mechanisms.network.layers import find_sites
from pluribus.method import Method
from pluribus.methods import BatchEnsemble, DeepEnsembles, MCDropout, Single
from tests import zoo

METHODS = [Single(), DeepEnsembles(members=2), BatchEnsemble(members=2), MCDropout(draws=2)]


def test_methods_are_abstract_or_final():
    with pytest.raises(TypeError, match="abstract"):
        Method()
    assert not [child for kind in Method.known().values() for child in kind.__subclasses__()]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_settings_for_single_layers_are_settings(method):
    assert method.per_layer <= set(method.to_dict()) - {"kind", "version"}


@pytest.mark.parametrize(
    ("method", "override", "expected"),
    [
        (MCDropout(), {"rate": 0.5}, MCDropout(rate=0.5)),
        (MCDropout(draws=3), MCDropout(draws=3, rate=0.5), MCDropout(draws=3, rate=0.5)),
        (BatchEnsemble(), {"std": 0}, BatchEnsemble(std=0)),
        (DeepEnsembles(), {"start": "copy"}, DeepEnsembles(start="copy")),
        (DeepEnsembles(), {}, DeepEnsembles()),
    ],
)
def test_a_layer_may_have_settings_of_its_own(method, override, expected):
    assert method.with_settings(override, "*") == expected


@pytest.mark.parametrize(
    ("method", "override", "message"),
    [
        (
            MCDropout(),
            {"draws": 3},
            r"may change rate of MCDropout for single layers, but 'draws' holds",
        ),
        (MCDropout(), MCDropout(draws=3), r"may change rate of MCDropout .* 'draws' holds for all"),
        (MCDropout(), {"rates": 3}, r"got 'rates'\. Did you mean 'rate'\?"),
        (MCDropout(), {"rate": 3}, r"rate must be below 1, got 3"),
        (MCDropout(), BatchEnsemble(), r"overrides\['head'\] must be settings of MCDropout, or Single\(\)"),
        (Single(), {"rate": 0.5}, r"settings of Single are none, got 'rate'"),
    ],
)
def test_impossible_settings_of_a_layer_are_refused_by_name(method, override, message):
    with pytest.raises(SettingError, match=message):
        method.with_settings(override, "head")


@pytest.mark.parametrize("override", [0.3, None, "rate", ["rate"], nn.Linear], ids=str)
def test_an_override_that_is_neither_dict_nor_method_is_refused(override):
    with pytest.raises(SettingError, match=r"overrides\['head'\] must be"):
        MCDropout().with_settings(override, "head")


@pytest.mark.parametrize("method", METHODS[1:3], ids=str)
def test_what_has_nothing_to_convert_says_why(method):
    sites = {site.name: site for site in find_sites(zoo.frozen_trunk())}
    assert method.why_skipped(sites["0"]) == "frozen"
    assert method.why_skipped(sites["2"]) == "no parameters"
    assert method.why_skipped(sites["7"]) == ""
    statistics = find_sites(nn.BatchNorm1d(3, affine=False))[0]
    assert method.why_skipped(statistics) == ""


def test_the_last_override_that_matches_wins():
    std = {"*": {"std": 0.0}, "head": {"std": 0.3}}
    ensemble = pl.convert(zoo.SharedModule(), BatchEnsemble(members=2), overrides=std)
    first = dict(ensemble.members.tensors.first.named_parameters())
    assert_close(first["middle.weight"], torch.ones(2, 8).requires_grad_())
    assert (first["head.weight"] != 1).all()
    ensemble = pl.convert(zoo.SharedModule(), BatchEnsemble(members=2), overrides=dict(reversed(std.items())))
    assert all((factor == 1).all() for factor in ensemble.members.tensors.first.parameters())


def test_an_overridden_layer_may_be_left():
    ensemble = pl.convert(zoo.SharedModule(), BatchEnsemble(members=2), overrides={"head": Single()})
    assert "head.weight" not in dict(ensemble.members.tensors.first.named_parameters())


@pytest.mark.parametrize("method", METHODS[1:], ids=str)
def test_leaving_everything_is_refused_with_the_reasons(method):
    with pytest.raises(ConversionError, match=r"must have a layer to convert, but all are left \(excluded\)"):
        pl.convert(zoo.mlp(), method, exclude="*")
    with pytest.raises(ConversionError, match=r"left by overrides"):
        pl.convert(zoo.mlp(), method, overrides={"*": Single()})


def test_a_frozen_network_is_refused_by_methods_that_train():
    model = zoo.mlp().requires_grad_(False)
    for method in METHODS[1:3]:
        with pytest.raises(ConversionError, match=r"all are left \(frozen, no parameters\)"):
            pl.convert(model, method)
    assert pl.convert(model, MCDropout(draws=2))(torch.zeros(3, 6)).shape == (1, 3, 3)


@pytest.mark.parametrize("method", [DeepEnsembles, None, 4], ids=str)
def test_what_is_no_method_is_refused(method):
    with pytest.raises(SettingError, match="method must be a Method such as DeepEnsembles"):
        pl.convert(zoo.mlp(), method)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_refusal_changes_nothing(method):
    model = zoo.mlp()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(ConversionError):
        pl.convert(model, method, include="nothing")
    assert_close(dict(model.state_dict()), before, rtol=0, atol=0)
    assert not any(layer._forward_pre_hooks for layer in model.modules())


def test_every_row_sees_every_sample_unless_a_method_says_otherwise():
    assert DeepEnsembles().assign(12, range(4), 0.0) is None
    assert BatchEnsemble(repeat=True).assign(12, range(4), 0.0) is None
    parts = BatchEnsemble().assign(12, range(4), 0.0)
    assert sorted(torch.cat(parts).tolist()) == list(range(12))


@pytest.mark.parametrize(
    ("method", "longer", "decay"),
    [
        (methods.Single(), 1, None),
        (methods.PackedEnsembles(), 3, None),
        (methods.Masksembles(), 4, None),
        (methods.Masksembles(members=2), 2, None),
        (methods.Masksembles(repeat=True), 1, None),
        (methods.BatchEnsemble(), 2, None),
        (methods.LayerEnsembles(), 3, None),
        (methods.LayerEnsembles(options=1), 1, None),
        (methods.LayerEnsembles(start="copy"), 1, None),
        (methods.SAE(), 2, None),
        (methods.SAE(inputs=1), 1, None),
        (methods.EMP(), 1, 0),
        (methods.EMP(divide=True), 2, 0),
    ],
    ids=str,
)
def test_recipes_follow_from_settings(method, longer, decay):
    found = method.recipe()
    assert (found.longer, found.weight_decay, found.schedule) == (longer, decay, None)
