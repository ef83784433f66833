"""A whole calibration: halves, closed forms, and promises kept on new data within binomial bounds."""

import math

import pytest
import torch
from scipy.stats import binom
from torch.testing import assert_close

from pluribus import Bernoulli, Categorical, Gaussian, InputError, Point
from pluribus.calibration.conformal import conformal_quantile
from pluribus.calibration.fit import Validation, fit_calibration
from pluribus.mechanisms.network.inputs import Inputs

SAMPLES, NEW = 2000, 4000


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def calibrated(likelihood, outputs_of, x, target, level=0.8, false_alarm=0.1, shifted=None):
    """Calibrate a network that is a function, and return a function that predicts by it."""

    def predict(inputs):
        return likelihood.prediction(outputs_of(inputs.args[0]))

    found = fit_calibration(predict, Validation(Inputs.of(x), target), level, false_alarm, shifted, auto=True)
    return found, lambda new: predict(Inputs.of(new)).calibrated(found)


def within_bounds(share, expected, samples=NEW, calibration=SAMPLES // 2):
    """Return whether a share fits: both the new samples and the quantile of the half are random."""
    low, high = binom.interval(0.999, samples, expected)
    slack = 4 * math.sqrt(expected * (1 - expected) / calibration) * samples
    return low - slack <= share * samples <= high + slack


def classes(samples, seed):
    x = 2 * normal(samples, 5, seed=seed)
    drawn = torch.multinomial(x.softmax(1), 1, generator=torch.Generator().manual_seed(1000 + seed))
    return x, drawn.squeeze(1)


def two_sharp_members(x):
    return torch.stack((3 * x, 3.2 * x))


def test_sets_and_flags_of_classes_keep_their_promises():
    found, predict = calibrated(Categorical(), two_sharp_members, *classes(SAMPLES, 0))
    x, target = classes(NEW, 1)
    prediction = predict(x)
    assert found.temperature == pytest.approx(3.1, rel=0.1)
    covered = prediction.sets.gather(1, target.unsqueeze(1)).double().mean().item()
    assert within_bounds(covered, 0.8)
    assert within_bounds(prediction.flagged.double().mean().item(), 0.1)
    assert prediction.sets.shape == (NEW, 5)
    assert prediction.sets.dtype == prediction.flagged.dtype == torch.bool


@pytest.mark.parametrize("labels", [(), (1,), (3,)])
def test_sets_of_yes_or_no_keep_their_promise(labels):
    def drawn(samples, seed):
        x = normal(samples, 3, seed=seed)
        logits = x if labels == (3,) else x[:, :1].reshape(samples, *labels)
        return x, torch.bernoulli(logits.sigmoid(), generator=torch.Generator().manual_seed(1000 + seed))

    def outputs(x):
        logits = x if labels == (3,) else x[:, :1].reshape(len(x), *labels)
        return torch.stack((2 * logits, 2.2 * logits))

    _, predict = calibrated(Bernoulli(), outputs, *drawn(SAMPLES, 0))
    x, target = drawn(NEW, 1)
    prediction = predict(x)
    assert prediction.sets.shape == (NEW, 2, *labels)
    covered = prediction.sets.gather(1, target.long().unsqueeze(1)).double().mean().item()
    assert within_bounds(covered, 0.8)
    assert prediction.flagged.shape == (NEW,)


@pytest.mark.parametrize("likelihood", [Gaussian(), Gaussian(precision=4.0), Point()], ids=str)
def test_intervals_keep_their_promise(likelihood):
    """The noise has a standard deviation of 1, of which the network knows nothing."""

    def drawn(samples, seed):
        x = normal(samples, 2, seed=seed)
        return x, x + normal(samples, 2, seed=seed + 10)

    def outputs(x):
        means = torch.stack((x, x + 0.1))
        return torch.cat((means, 0 * means - 3), 2) if likelihood == Gaussian() else means

    found, predict = calibrated(likelihood, outputs, *drawn(SAMPLES, 0))
    x, target = drawn(NEW, 1)
    low, high = predict(x).interval()
    inside = ((low <= target) & (target <= high)).double().mean().item()
    assert within_bounds(inside, 0.8)
    assert (high - low).mean().item() == pytest.approx(2 * 1.2816, rel=0.06)
    assert (found.variance_scale > 3) == isinstance(likelihood, Gaussian)


def test_a_scale_below_one_is_tried_on_shifted_data():
    def outputs(x):
        # All variances are too large by far on usual samples, and too small on those that are moved.
        return torch.cat((x[None], 0 * x[None] + 3), 2)

    x = normal(SAMPLES, 1)
    target = x + 0.1 * normal(SAMPLES, 1, seed=1)
    moved = Validation(Inputs.of(x + 4), target)
    usual, _ = calibrated(Gaussian(), outputs, x, target)
    kept, _ = calibrated(Gaussian(), outputs, x, target, shifted=moved)
    same, _ = calibrated(Gaussian(), outputs, x, target, shifted=Validation(Inputs.of(x), target))
    assert usual.variance_scale == same.variance_scale < 0.1
    assert kept.variance_scale == 1
    assert "corrupted data" in kept.notes[0]
    assert usual.notes == same.notes == ()


def test_quantiles_do_not_see_the_half_that_was_fitted():
    """The quantile and the threshold are order statistics of the second half alone."""
    x, target = classes(100, 0)
    found, predict = calibrated(Categorical(), two_sharp_members, x, target)
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    second = order[50:]
    prediction = predict(x[second])
    misses = 1 - prediction.probabilities.gather(1, target[second].unsqueeze(1))
    assert found.quantile == conformal_quantile(misses, 0.8)
    assert found.threshold == conformal_quantile(prediction.ood_score, 0.9)
    assert_close(found.reference, prediction.ood_score.sort().values)
    assert found.samples == 100


def test_temperature_below_one_is_tried_on_shifted_data():
    x, target = classes(SAMPLES, 0)
    shifted = Validation(Inputs.of(x), target)

    def unsure(x):
        return (0.3 * x).unsqueeze(0)

    without, _ = calibrated(Categorical(), unsure, x, target)
    assert without.temperature == 1.0
    assert "no corrupted data" in without.notes[0]
    harmless, _ = calibrated(Categorical(), unsure, x, target, shifted=shifted)
    assert harmless.temperature == pytest.approx(0.3, rel=0.1)
    harmful, _ = calibrated(Categorical(), unsure, x, target, shifted=Validation(Inputs.of(-x), target))
    assert harmful.temperature == 1.0
    assert "on corrupted data that raises the NLL" in harmful.notes[0]


def test_images_are_corrupted_to_try_a_temperature_below_one():
    x = torch.rand(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    target = (x.mean((1, 2, 3)) > 0.5).long()
    sizes = []

    def outputs(x):
        sizes.append(len(x))
        yes = x.mean((1, 2, 3)) - 0.5
        return torch.stack((-yes, yes), 1).unsqueeze(0)

    found, _ = calibrated(Categorical(), outputs, x, target)
    # Clean first half, four corruptions of it, four alterations (three rotations), the second half.
    assert sizes == [30, 120, 90, 30, 30, 30, 30]
    assert found.temperature < 1 or found.notes


def test_the_score_that_tells_altered_samples_best_is_taken():
    generator = torch.Generator().manual_seed(0)
    target = torch.arange(80) % 2
    # One corner is bright; altered images have it elsewhere, where outputs are sure and both classes far.
    x = 0.1 * torch.rand(80, 1, 8, 8, generator=generator)
    x[target == 0, :, :4, :4] += 1
    x[target == 1, :, :4, 4:] += 1

    def outputs(x):
        corners = torch.nn.functional.avg_pool2d(x, 4).flatten(1)
        return torch.stack((corners[:, 0] + 3 * corners[:, 2], corners[:, 1] + 3 * corners[:, 3]), 1)[None]

    found, predict = calibrated(Categorical(), outputs, x, target)
    assert found.score == "mahalanobis"
    assert found.aurocs["mahalanobis"] > 0.9 > 0.6 > found.aurocs["entropy"]
    assert predict(x.flip(2)).flagged.double().mean() > 0.9


def test_few_samples_give_infinite_quantiles_and_a_note():
    found, predict = calibrated(Categorical(), two_sharp_members, *classes(6, 0), level=0.9)
    assert found.quantile == found.threshold == math.inf
    assert "too few" in found.notes[-1]
    x, _ = classes(5, 1)
    assert predict(x).sets.all()
    assert not predict(x).flagged.any()
    with pytest.raises(InputError, match="at least 4 samples, got 3"):
        calibrated(Categorical(), two_sharp_members, *classes(3, 0))


def test_dense_classes_are_calibrated_by_position():
    def drawn(samples, seed):
        x, target = classes(samples * 4, seed)
        return x.reshape(samples, 4, 5).movedim(1, 2), target.reshape(samples, 4)

    x, target = drawn(500, 0)
    target[0, 0] = -100
    found, predict = calibrated(Categorical(), two_sharp_members, x, target)
    x, target = drawn(1000, 1)
    prediction = predict(x)
    assert prediction.sets.shape == (1000, 5, 4)
    assert prediction.flagged.shape == (1000,)
    covered = prediction.sets.gather(1, target.unsqueeze(1)).double().mean().item()
    assert within_bounds(covered, 0.8)
    assert found.score != "mahalanobis"
