"""Presets: every name makes a method, and wrong names are refused."""

import math

import pytest
import torch
from torch.testing import assert_close

from pluribus.conversion import convert
from pluribus.errors import SettingError
from pluribus.methods import VNN, BayesByBackprop, Hypermodel, Masksembles
from pluribus.testbed.networks import make_mlp
from pluribus.testbed.presets import (
    ALL,
    PRESETS,
    REFERENCES,
    TARGET_NOISES,
    make_preset,
    parameters_of,
    read_names,
)


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("as_in_paper", [False, True])
def test_every_preset_has_its_name(name, as_in_paper):
    preset = make_preset(name, 10, as_in_paper)
    assert preset.name == name
    assert preset.target_noise in TARGET_NOISES


def test_the_papers_draws_are_those_of_its_code():
    bayes, hyper = (make_preset(name, 10, True).method for name in ("bayes_by_backprop", "hypermodel"))
    assert isinstance(bayes, BayesByBackprop)
    assert isinstance(hyper, Hypermodel)
    assert (bayes.train_draws, hyper.train_draws, hyper.dimension) == (64, 400, 20)


def test_as_in_paper_vnn_and_hypermodel_are_those_that_the_sweeps_selected():
    vnn, hyper = (make_preset(name, 10, True) for name in ("vnn", "hypermodel"))
    assert (vnn.width, vnn.cosine, vnn.bootstrap) == (100, True, True)
    assert vnn.method == VNN(
        draws=100, deviation=1.0, global_std="multiply", factor=2.0, train_draws=100, activation="none"
    )
    assert (hyper.method.prior, hyper.method.prior_scale) == ("random_features", 5.0)
    assert (hyper.target_noise, vnn.zeroed) == ("index", "biases")


def test_as_in_paper_hypermodel_starts_as_a_linear_layer_without_a_constant():
    preset = make_preset("hypermodel", 10, True)
    ensemble = convert(make_mlp(10, zeroed=preset.zeroed), preset.method, "point")
    tensors = ensemble.members.learnt.tensors
    assert not any(value.any() for value in tensors.parts()[0].values())
    for directions in tensors.directions.parameters():
        if directions.numel() > 5000:
            assert_close(directions.std().item(), 0.88 / 20**0.5, rtol=0.05, atol=0)


def test_as_in_paper_the_means_of_bayes_by_backprop_have_a_wide_prior():
    preset = make_preset("bayes_by_backprop", 10, True)
    assert (preset.mean_prior, preset.scaled) == (100, "weights")
    assert make_preset("bayes_by_backprop", 10, False).mean_prior == 0


def test_bayes_by_backprop_starts_as_the_authors_code_does():
    preset = make_preset("bayes_by_backprop", 10, False)
    ensemble = convert(make_mlp(10, scaled=preset.scaled, zeroed=preset.zeroed), preset.method, "point")
    for mean, deviation in ensemble.members.tensors.gaussians().values():
        assert not mean.any()
        assert_close(deviation, torch.full_like(mean, math.log(2) * 100 / math.sqrt(parameters_of(10))))


def test_all_is_every_method_and_every_reference():
    assert read_names("all") == list(ALL)
    assert set(REFERENCES) < set(ALL)
    assert read_names("swag, swag") == ["swag"]


def test_methods_of_ones_own_have_brackets():
    (name,) = read_names("masksembles(members=3, scale=2)")
    assert make_preset(name, 10, False).method == Masksembles(3, scale=2.0)


@pytest.mark.parametrize("text", ["", "swagg", "single", "masksembles(member=3)"])
def test_unknown_methods_are_refused(text):
    with pytest.raises(SettingError):
        read_names(text)


def test_draws_of_each_sample_become_draws_of_a_batch():
    for text in ("emp(draws=2)", "ecmp(draws=2)"):
        (name,) = read_names(text)
        assert make_preset(name, 1, False).method.per_sample is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("emp(per_sample=True)", "needs per_sample=False"),
        ("mimo(inputs=2)", "several inputs or exits"),
        ("mimmo(inputs=2)", "several inputs or exits"),
        ("early_exit()", "several inputs or exits"),
        ("sae()", "several inputs or exits"),
        ("laplace()", "after a pass over the data"),
    ],
)
def test_methods_that_cannot_be_trained_row_by_row_are_refused_before_training(text, reason):
    with pytest.raises(SettingError, match=reason):
        read_names(text)
