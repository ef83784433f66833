"""Reduction: members that share nothing train as if each were alone."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import Split, Task
from pluribus.mechanisms.members.reduction import is_sum, shares_nothing
from pluribus.methods import DeepEnsembles, DeepSubEnsembles, PackedEnsembles, Single
from pluribus.training import Training, train


def network():
    torch.manual_seed(1)
    layers = [nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)]
    return nn.Sequential(*layers).double()


def make_task():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(70, 4, generator=generator, dtype=torch.float64)
    y = torch.randint(3, (70,), generator=generator)
    empty = Split(x[:0], y[:0])
    return Task("random", Split(x, y), empty, Split(x[:8], y[:8]), classes=3)


# A clip of 0.6 is below some members' norms and above others', and so tells joint from separate clipping.
SGD = Training(
    epochs=3, batch=16, optimizer="sgd", lr=0.1, momentum=0.9, weight_decay=0.05, clip=0.6, keep="last"
)


def trained(ensemble, settings=SGD):
    train(ensemble, make_task(), settings, show=False)
    return ensemble


def weights(ensemble):
    return [dict(ensemble.member(row).named_parameters()) for row in range(len(ensemble.weights))]


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_deep_packed_and_separate_trainings_end_at_the_same_weights(optimizer):
    settings = Training(**{**vars(SGD), "optimizer": optimizer, "lr": 0.1 if optimizer == "sgd" else 0.01})
    packed = pl.convert(network(), PackedEnsembles(members=3, alpha=1.5), example=torch.zeros(2, 4).double())
    members = [packed.member(row).train() for row in range(3)]
    deep = pl.from_models([copy.deepcopy(one) for one in members]).train()
    alone = [trained(pl.convert(one, Single()).train(), settings) for one in members]
    expected = [weights(one)[0] for one in alone]
    for ensemble in (deep, packed.train()):
        for came, wanted in zip(weights(trained(ensemble, settings)), expected, strict=True):
            assert_close(came, wanted, rtol=1e-9, atol=1e-12)


def test_tails_of_a_frozen_trunk_train_as_if_alone():
    model = network()
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    tails = pl.convert(model, DeepSubEnsembles(members=3, trunk=("0", "1")))
    alone = []
    for row in range(3):
        one = tails.member(row).train()
        assert not one[0].weight.requires_grad
        assert one[3].weight.requires_grad
        alone.append(weights(trained(pl.convert(one, Single())))[0])
    for came, wanted in zip(weights(trained(tails.train())), alone, strict=True):
        assert_close(came, wanted, rtol=1e-9, atol=1e-12)


def test_a_trained_trunk_has_the_mean_and_a_frozen_one_the_sum():
    model = network()
    tails = pl.convert(model, DeepSubEnsembles(members=3, trunk=("0", "1")))
    assert not shares_nothing(tails.members)
    assert not is_sum("auto", tails.members)
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    frozen = pl.convert(model, DeepSubEnsembles(members=3, trunk=("0", "1")))
    assert is_sum("auto", frozen.members)
    assert not is_sum("mean", frozen.members)
    assert is_sum("sum", tails.members)


def test_deep_ensembles_with_a_shared_trained_layer_train_the_mean():
    x, y = torch.randn(5, 4).double(), torch.tensor([0, 1, 2, 0, 1])
    deep = pl.convert(network(), DeepEnsembles(members=2), exclude="0").train()
    losses = torch.stack([nn.functional.cross_entropy(row, y) for row in deep(x)])
    assert_close(deep.loss(x, y), losses.mean())
    assert not deep.method.is_separate(deep.members)


@pytest.mark.parametrize("method", [DeepEnsembles(members=3), PackedEnsembles(members=3, alpha=1.5)], ids=str)
def test_the_loss_is_a_sum_in_training_and_a_mean_in_evaluation(method):
    x, y = torch.randn(5, 4).double(), torch.tensor([0, 1, 2, 0, 1])
    ensemble = pl.convert(network(), method, example=x)
    for training in (True, False):
        losses = torch.stack([nn.functional.cross_entropy(row, y) for row in ensemble.train(training)(x)])
        assert_close(ensemble.loss(x, y), losses.sum() if training else losses.mean())


@pytest.mark.parametrize("method", [DeepEnsembles, DeepSubEnsembles, PackedEnsembles])
def test_files_of_the_version_before_read_as_the_mean(method):
    written = method().to_dict()
    assert written["reduction"] == "auto"
    assert written["version"] >= 2
    del written["reduction"]
    assert pl.Method.from_dict({**written, "version": 1}).reduction == "mean"
    assert pl.Method.from_dict({**written, "version": 1, "reduction": "sum"}).reduction == "sum"
    assert pl.Method.from_dict(written).reduction == "auto"
