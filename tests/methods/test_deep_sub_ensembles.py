"""Deep Sub-Ensembles: a shared trunk, several tails."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import ConversionError, SettingError
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.methods import DeepEnsembles, DeepSubEnsembles
from tests import zoo
from tests.cases import case_named


def own(ensemble):
    return set(named_tensors(ensemble.members.tensors.own))


@pytest.mark.parametrize("trunk", ["[013]*", ("0", "1", "3.*")])
def test_it_is_a_deep_ensemble_of_the_tail(trunk):
    case = case_named("residual_cnn")
    sub = pl.convert(case.model(), DeepSubEnsembles(members=3, trunk=trunk), seed=4).eval()
    deep = pl.convert(case.model(), DeepEnsembles(members=3), include="7", seed=4).eval()
    assert own(sub) == {"7.weight", "7.bias"}
    assert_close(sub(case.inputs()), deep(case.inputs()), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("share", "tail"), [(0.0, {"0", "2", "4", "6"}), (0.5, {"4", "6"}), (0.6, {"4", "6"}), (0.99, {"6"})]
)
def test_a_share_counts_layers_with_parameters_from_the_first(share, tail):
    layers = [layer for _ in range(4) for layer in (nn.Linear(5, 5), nn.Tanh())]
    ensemble = pl.convert(nn.Sequential(*layers), DeepSubEnsembles(members=2, trunk=share))
    assert {name.partition(".")[0] for name in own(ensemble)} == tail


def test_no_trunk_is_the_deep_ensemble():
    case = case_named("mlp")
    sub, deep = (
        pl.convert(case.model(), method, seed=1).eval()
        for method in (DeepSubEnsembles(3, trunk=0.0), DeepEnsembles(3))
    )
    assert_close(sub(case.inputs()), deep(case.inputs()), rtol=0, atol=0)


def test_the_trunk_keeps_its_weights_and_is_trained_by_all_tails():
    model, x, y = zoo.mlp().double(), torch.randn(8, 6, dtype=torch.float64), torch.arange(8) % 3
    ensemble = pl.convert(model, DeepSubEnsembles(members=3, trunk="0"))
    trunk = ensemble.members.tensors.shared.get_parameter("0.weight")
    assert_close(trunk, model[0].weight, rtol=0, atol=0)
    ensemble.loss(x, y).backward()
    gradients = []
    for i in range(3):
        member = ensemble.member(i)
        nn.functional.cross_entropy(member(x), y).backward()
        gradients.append(member[0].weight.grad)
    assert_close(trunk.grad, torch.stack(gradients).mean(0))


def test_rows_choose_tensors_of_the_tail_alone():
    ensemble = pl.convert(zoo.mlp(), DeepSubEnsembles(members=3, trunk="0"))
    assert set(ensemble.members.tensors.keys(2)) == own(ensemble)
    assert not any(name.startswith("0.") for name in ensemble.members.tensors.keys(2))
    assert ensemble.conversion["0"].reason == "trunk"


def test_a_trunk_that_is_all_is_refused():
    with pytest.raises(ConversionError, match="the tail must have a layer to train, got trunk='\\*'"):
        pl.convert(zoo.mlp(), DeepSubEnsembles(trunk="*"))


def test_a_trunk_that_is_not_there_is_refused():
    with pytest.raises(ConversionError, match="trunk must pick at least one layer"):
        pl.convert(zoo.mlp(), DeepSubEnsembles(trunk="backbone.*"))


def test_layers_tied_across_the_cut_are_refused():
    with pytest.raises(ConversionError, match="tied layers must be on one side"):
        pl.convert(zoo.tied_embedding(), DeepSubEnsembles(trunk="0"))


@pytest.mark.parametrize("trunk", [1.0, -0.1, "", (), (1,), None])
def test_an_impossible_trunk_is_refused(trunk):
    with pytest.raises(SettingError, match="trunk must be"):
        DeepSubEnsembles(trunk=trunk)


def test_patterns_come_back_from_a_file_as_they_were():
    method = DeepSubEnsembles(trunk=("0", "1"))
    assert pl.Method.from_dict({**method.to_dict(), "trunk": ["0", "1"]}) == method
