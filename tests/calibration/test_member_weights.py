"""Fitted weights: the maximum of a concave objective, equal without evidence, and kept with the ensemble."""

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus import Categorical, Gaussian, InputError, Point
from pluribus.calibration.member_weights import PSEUDO, fit_weights
from pluribus.methods import SAE, EarlyExit
from tests.cases import blocks, seeded

X = torch.randn(80, 6, generator=seeded(0))
Y = (X[:, 0] > 0).long()


def logits(*strengths, samples=400):
    """Return outputs of members that know the label by a strength each, and the labels."""
    generator = seeded(1)
    target = torch.randint(2, (samples,), generator=generator)
    sign = 2.0 * target - 1
    noise = torch.randn(len(strengths), samples, generator=generator, dtype=torch.float64)
    score = torch.tensor(strengths, dtype=torch.float64).unsqueeze(1) * sign + noise
    return torch.stack((-score, score), 2), target


def objective(logs, weights):
    mixed = (logs.exp() * weights.unsqueeze(1)).sum(0).log().sum()
    return (mixed + PSEUDO / len(weights) * weights.log().sum()).item()


def test_weights_are_the_maximum_of_the_penalised_likelihood():
    outputs, target = logits(2.0, 0.5, -1.0)
    weights = fit_weights(Categorical().prediction(outputs), target)
    own = target.reshape(1, -1, 1).expand(3, -1, 1)
    logs = outputs.log_softmax(2).gather(2, own).squeeze(2)
    # Found by another method: descent on the logits of the weights.
    free = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([free], max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        now = free.softmax(0)
        mixed = (logs.exp() * now.unsqueeze(1)).sum(0).log().sum()
        value = -(mixed + PSEUDO / 3 * now.log().sum())
        value.backward()
        return value

    optimizer.step(loss)
    assert_close(weights, free.softmax(0).detach(), atol=1e-4, rtol=0)
    assert weights[0] > 0.8
    assert objective(logs, weights) > objective(logs, torch.full_like(weights, 1 / 3))


def test_weights_of_few_samples_stay_nearer_to_equal_ones():
    few = fit_weights(Categorical().prediction(logits(2.0, -1.0)[0][:, :4]), logits(2.0, -1.0)[1][:4])
    many = fit_weights(Categorical().prediction(logits(2.0, -1.0)[0]), logits(2.0, -1.0)[1])
    assert 0.5 < few[0] < 0.95
    assert few[0] + 0.04 < many[0] < 1


def test_weights_of_equal_members_are_equal():
    outputs, target = logits(1.0)
    weights = fit_weights(Categorical().prediction(outputs.expand(3, -1, -1)), target)
    assert_close(weights, torch.full((3,), 1 / 3, dtype=torch.float64))


def test_weights_of_numbers_prefer_the_member_near_the_target():
    means = torch.stack((torch.zeros(200, 1), torch.full((200, 1), 3.0)))
    outputs = torch.cat((means, torch.zeros_like(means)), 2)
    weights = fit_weights(Gaussian().prediction(outputs), torch.zeros(200, 1))
    assert weights[0] > 0.9


def test_weights_need_a_density():
    with pytest.raises(InputError, match="without a model"):
        fit_weights(Point().prediction(torch.zeros(2, 5, 1)), torch.zeros(5, 1))


@pytest.mark.parametrize("method", [EarlyExit(), SAE(fit_weights=True)])
def test_calibrate_keeps_fitted_weights_in_files_and_graphs(method, tmp_path):
    ensemble = pl.convert(blocks(4), method, example=X[:2]).eval()
    before = ensemble.weights
    ensemble.calibrate((X, Y))
    assert not torch.allclose(ensemble.weights, before)
    assert_close(ensemble.weights.sum().item(), 1.0)
    expected = ensemble.predict(X)
    assert_close(expected.weights, ensemble.weights)
    assert_close(ensemble.freeze().predict(X).probabilities, expected.probabilities)
    ensemble.save(tmp_path / "saved")
    loaded = pl.load(tmp_path / "saved", blocks(4), example=X[:2])
    assert torch.equal(loaded.predict(X).probabilities, expected.probabilities)


def test_shrinking_and_training_drop_fitted_weights():
    ensemble = pl.convert(blocks(4), EarlyExit(), example=X[:2]).eval()
    ensemble.calibrate((X, Y), weights=True)
    assert_close(ensemble.shrink([0, 2]).weights, torch.full((2,), 0.5))
    assert_close(ensemble.predict(X, exit_when=1.0).weights, torch.full((4,), 0.25))
    ensemble.train().loss(X, Y)
    assert_close(ensemble.weights, torch.full((4,), 0.25))


def test_calibrate_without_the_setting_leaves_weights_alone():
    ensemble = pl.convert(blocks(4), EarlyExit(fit_weights=False), example=X[:2]).eval()
    ensemble.calibrate((X, Y))
    assert ensemble.calibration is not None
    assert ensemble.calibration.weights is None


def test_calibrate_leaves_weights_of_numbers_without_a_density_alone():
    ensemble = pl.convert(blocks(4), EarlyExit(), "point", example=X[:2]).eval()
    calibration = ensemble.calibrate((X, torch.randn(ensemble(X).shape[1:])))
    assert calibration.weights is None


def test_files_of_version_2_keep_equal_weights():
    written = EarlyExit().to_dict() | {"version": 2}
    del written["fit_weights"]
    assert pl.Method.from_dict(written) == EarlyExit(fit_weights=False)
