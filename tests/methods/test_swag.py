"""SWAG: moments of the weights, Eq. (1), batch statistics of members, and none without snapshots."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import two_moons
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.methods import SWAG
from pluribus.methods.swag import draw_weights
from pluribus.training import Training, train

X = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = torch.arange(12) % 3


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()


def walked(method=None, steps=8):
    """An ensemble whose weights were looked at after each of some steps, and what they were."""
    ensemble = pl.convert(network(), method or SWAG(members=3, snapshots=steps, start=0.0), example=X).train()
    weight, seen = ensemble.members.tensors.shared.get_parameter("3.weight"), []
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        with torch.no_grad():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
        ensemble.loss(X, Y)
        ensemble.after_step(step / (steps - 1))
        seen.append(weight.detach().clone())
    return ensemble, torch.stack(seen)


def test_moments_are_those_of_the_snapshots():
    ensemble, seen = walked()
    tensors = ensemble.members.tensors
    assert tensors.count == 8
    assert_close(named_tensors(tensors.mean)["3.weight"], seen.mean(0))
    assert_close(named_tensors(tensors.square)["3.weight"], seen.square().mean(0))
    means = seen.cumsum(0) / torch.arange(1, 9).view(-1, 1, 1)
    assert_close(named_tensors(tensors.deviations)["3.weight"][:8], seen - means)


def test_only_the_last_deviations_are_kept():
    ensemble, seen = walked(SWAG(members=2, snapshots=8, start=0.0, rank=3))
    means = seen.cumsum(0) / torch.arange(1, 9).view(-1, 1, 1)
    kept = named_tensors(ensemble.members.tensors.deviations)["3.weight"]
    assert_close(kept, (seen - means)[[6, 7, 5]])  # a ring: 0, 3, 6 lie at place 0


def test_draws_have_the_mean_and_the_covariance_of_eq_1():
    generator = torch.Generator().manual_seed(0)
    mean = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    deviations = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    square = mean**2 + torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64)
    draws = torch.stack(
        [
            draw_weights(
                mean,
                square,
                deviations,
                1.5,
                torch.randn(3, generator=generator, dtype=torch.float64),
                torch.randn(4, generator=generator, dtype=torch.float64),
            )
            for _ in range(20_000)
        ]
    )
    expected = 1.5 * (torch.diag(square - mean**2) / 2 + deviations.T @ deviations / (2 * 3))
    assert_close(draws.mean(0), mean, atol=0.05, rtol=0)
    assert_close(draws.T.cov(), expected, atol=0.1, rtol=0)


def test_a_scale_of_zero_is_the_average():
    ensemble, seen = walked(SWAG(members=2, snapshots=8, start=0.0, scale=0.0))
    for row in ensemble.members.tensors.of(ensemble.members.index.rows(training=False)):
        assert_close(row["3.weight"], seen.mean(0))


def test_prediction_without_snapshots_is_refused():
    ensemble = pl.convert(network(), SWAG(), example=X)
    ensemble.train().loss(X, Y)  # training needs none
    ensemble.after_step(0.5)  # before the start
    freeze, member = (lambda x: ensemble.freeze()), (lambda x: ensemble.member(0))
    for verb in (ensemble.eval(), ensemble.predict, freeze, member):
        with pytest.raises(pl.InputError, match="must have snapshots of its weights to predict, got none"):
            verb(X)


def test_snapshots_are_spread_evenly_from_the_start_on():
    ensemble = pl.convert(network(), SWAG(snapshots=5, start=0.5), example=X).train()
    taken = []
    for step in range(1, 101):
        before = int(ensemble.members.tensors.count)
        ensemble.after_step(step / 100)
        if ensemble.members.tensors.count > before:
            taken.append(step)
    assert taken == [50, 63, 75, 88, 100]


def test_training_runs_the_trained_weights():
    ensemble = pl.convert(network(), SWAG(), example=X).train()
    assert_close(ensemble(X)[0], network()(X))
    ensemble.loss(X, Y).backward()
    assert all(parameter.grad is not None for parameter in ensemble.parameters())


def test_finish_gives_every_member_the_statistics_of_its_own_activations():
    ensemble, _ = walked()
    ensemble.finish([(X[:6], Y[:6]), (X[6:], Y[6:])])
    for row in range(3):
        member = ensemble.eval().member(row)
        hidden = X @ member[0].weight.T + member[0].bias
        halves = torch.stack([hidden[:6].mean(0), hidden[6:].mean(0)])
        assert_close(member[1].running_mean, halves.mean(0))
    before = ensemble(X)
    ensemble.after_step(1.0)
    assert ensemble.members.tensors.finished  # no further snapshot was due
    assert_close(ensemble(X), before)


def test_every_form_agrees(tmp_path):
    ensemble, _ = walked()
    ensemble.eval().finish([X])
    rows = ensemble(X).detach()
    assert not torch.equal(rows[0], rows[1])
    assert_close(torch.stack([ensemble.member(row)(X) for row in range(3)]), rows)
    frozen = ensemble.freeze()
    assert_close(frozen(X), rows)
    assert "1 is part of 0" in frozen.notes
    assert_close(ensemble.predict(X, memory=1 << 30).member_probabilities, rows.softmax(2))
    small = ensemble.shrink([2, 0])
    assert_close(small(X), rows[[2, 0]])
    small.save(tmp_path / "few")
    assert_close(pl.load(tmp_path / "few", network(), example=X)(X), rows[[2, 0]])


def test_train_takes_snapshots_and_finishes():
    task = two_moons(train=60)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    ensemble = pl.convert(model, SWAG(members=4, snapshots=4), example=task.train.x[:2])
    history = train(ensemble, task, Training(epochs=4, batch=16), show=False)
    assert ensemble.members.tensors.count >= 1
    assert ensemble.members.tensors.finished
    scores = [row["validation_nll"] for row in history if "validation_nll" in row]
    assert all(math.isnan(score) for score in scores[:2])
    assert not any(math.isnan(score) for score in scores[3:])
    assert ensemble.predict(task.test.x).probabilities.shape == (len(task.test), 2)
