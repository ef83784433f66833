"""Training: presets learn, and many problems at once learn as each alone."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from pluribus.data.testbed import draw_problems
from pluribus.mechanisms.members.drawn import normal_numbers
from pluribus.methods import DeepEnsembles
from pluribus.testbed.presets import PRESETS, Preset, make_preset
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.training import Data, _widen_mean_prior, exponential_weights, train

PROBLEMS = draw_problems(3, 4, [0.1, 1.0], seed=0, points=8)


def quiet(progress):
    pass


# One of each kind of members; the others follow with `make test-slow`.
QUICK = {"layer_ensembles_2", "mc_dropout", "vnn", "hypermodel"}
CASES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PRESETS]


@pytest.mark.parametrize("name", CASES)
def test_every_preset_trains_and_predicts(name):
    # SWAG needs two snapshots to have a spread.
    learner = train(make_preset(name, 3, False), PROBLEMS, Protocol(steps=6), quiet)
    for place, problem in enumerate(PROBLEMS):
        outputs = learner.evaluate(place, problem.test[0])
        assert outputs.shape[1] == 8
        assert outputs.isfinite().all()
        assert outputs.std(0).min() > 0


def test_precision_is_that_of_weights_and_outputs():
    learner = train(
        make_preset("layer_ensembles_2", 3, False), PROBLEMS, Protocol(steps=1, precision="64-true"), quiet
    )
    assert {value.dtype for value in learner.stack.values.values()} == {torch.float64}
    assert learner.data.y.dtype == learner.evaluate(0, PROBLEMS[0].test[0].double()).dtype == torch.float64


def test_problems_at_once_learn_as_each_alone():
    preset = Preset("deep_ensembles(members=2)", DeepEnsembles(2, prior_scale=1.0))
    twice = train(preset, [PROBLEMS[0], PROBLEMS[0]], Protocol(steps=1), quiet)
    alone = train(preset, PROBLEMS[:1], Protocol(steps=1), quiet)
    x = PROBLEMS[0].test[0]
    # The numbers of the first problem are drawn first, so that it has the same batch in both.
    assert_close(twice.evaluate(0, x), alone.evaluate(0, x))
    assert not torch.equal(twice.evaluate(0, x), twice.evaluate(1, x))


def test_training_lowers_the_error():
    preset = make_preset("layer_ensembles_2", 3, False)
    errors = []
    for steps in (1, 150):
        learner = train(preset, PROBLEMS[:1], Protocol(steps=steps, rate=1e-2), quiet)
        mean = learner.evaluate(0, PROBLEMS[0].x).mean(0)
        errors.append((mean - PROBLEMS[0].y).square().mean())
    assert errors[1] < 0.3 * errors[0]


def test_options_of_the_first_layer_have_targets_of_their_own():
    learner = train(make_preset("layer_ensembles_3", 3, False), PROBLEMS, Protocol(steps=1), quiet)
    chosen = torch.zeros(2, 1, dtype=torch.long)
    outputs = learner.evaluate(0, PROBLEMS[0].x[:1])[:, 0]
    targets = outputs - learner.errors(chosen)[0, :, 0]
    assert_close(targets.view(3, 9), learner.targets[0, :, :1].expand(3, 9), rtol=1e-4, atol=1e-5)
    assert len(learner.targets[0, :, 0].unique()) == 3


def test_noisy_targets_have_the_noise_of_their_problem():
    data = Data(torch.zeros(2, 4000, 1), torch.zeros(2, 4000), torch.tensor([0.1, 1.0]))
    noisy = data.noisy([3], torch.Generator().manual_seed(0))
    assert noisy.shape == (2, 3, 4000)
    assert_close(noisy.std(2), torch.tensor([[0.1] * 3, [1.0] * 3]), rtol=0.05, atol=0)


def test_drawing_with_replacement_trains_too():
    learner = train(
        make_preset("layer_ensembles_2", 3, True), PROBLEMS, Protocol(steps=2, as_in_paper=True), quiet
    )
    assert learner.evaluate(0, PROBLEMS[0].test[0]).isfinite().all()


def test_the_prior_of_means_takes_the_place_of_that_of_the_draws():
    preset = make_preset("bayes_by_backprop_free_means", 3, False)
    stack = train(preset, PROBLEMS, Protocol(steps=2), quiet).stack
    found = stack.penalties(4, 10, 1.0) + _widen_mean_prior(stack, preset, 10)
    prior = preset.method.prior_deviation
    for place, one in enumerate(stack.ensembles):
        expected = 0.0
        for mean, deviation in one.members.tensors.gaussians().values():
            ratio = deviation / prior
            each = (ratio.square() + (mean / preset.mean_prior).square() - 1) / 2 - ratio.log()
            expected += each.sum() / 10
        assert_close(found[place], expected)


@pytest.mark.parametrize("name", ["hypermodel", "hypermodel_random_features"])
def test_one_index_makes_weights_prior_and_targets_of_all_problems(name):
    preset = make_preset(name, 3, False)
    learner = train(preset, PROBLEMS, Protocol(steps=2), quiet)
    rows, chosen = [11, 12], torch.zeros(2, 1, dtype=torch.long)
    learner.draw_rows = lambda: rows
    errors = learner.errors(chosen)[:, :, 0]
    noise = torch.stack([normal_numbers([20], row, 0, learner.directions) for row in rows]) / 20**0.5
    for place, (one, problem) in enumerate(zip(learner.stack.ensembles, PROBLEMS, strict=True)):
        outputs = torch.stack([one.members.as_module(row)(problem.x[:1])[0, 0] for row in rows])
        targets = problem.y[0] + problem.noise * (noise @ learner.directions[place, 0])
        assert_close(errors[place], (outputs - targets).float(), rtol=1e-4, atol=1e-4)


def test_bootstrap_weights_are_exponential_and_follow_from_the_row():
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(2, 1, 5000, 60, generator=generator) / 60**0.5
    index = torch.randn(3, 60, generator=generator)
    index = torch.cat((index, index[:1])) / index.square().mean(1).sqrt()[[0, 1, 2, 0], None]
    weights = exponential_weights(directions, index)[0]
    assert_close(weights.mean(1), torch.ones(4), rtol=0, atol=0.05)
    assert_close(weights.std(1), torch.ones(4), rtol=0, atol=0.1)
    assert torch.equal(weights[0], weights[3])
    assert torch.corrcoef(weights)[0, 1] < 0.3


def test_a_preset_with_bootstrap_weights_trains_rows_that_have_names():
    preset = make_preset("vnn", 3, True)
    preset = replace(preset, method=replace(preset.method, train_draws=2))
    learner = train(preset, PROBLEMS, Protocol(steps=2, as_in_paper=True), quiet)
    chosen = torch.arange(4).expand(2, 4)
    assert learner.squares(chosen).shape == (2, 2, 4)
    # The weights are all that differs between rows: their targets are the same.
    assert torch.equal(learner._targets(learner.rows, chosen)[:, 0], learner.data.y[:, :4])
    assert len(set(learner.rows)) == 2
    assert learner.evaluate(0, PROBLEMS[0].test[0]).std(0).min() > 0
