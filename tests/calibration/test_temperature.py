"""Temperature: it undoes factors of logits, stays finite, and sharpens only where that is safe."""

import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.testing import assert_close

from pluribus import Bernoulli, Categorical
from pluribus.calibration import fit_temperature, with_temperature
from pluribus.calibration.temperature import safe_temperature
from pluribus.metrics import nll


def classified(temperature: float = 1.0, samples: int = 4000, seed: int = 0):
    """A prediction whose logits are too sharp by a factor, and targets drawn from the true distribution."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(samples, 5, generator=generator, dtype=torch.float64)
    target = torch.multinomial(logits.softmax(1), 1, generator=generator).squeeze(1)
    return Categorical().prediction((logits * temperature).unsqueeze(0)), target


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_temperature_undoes_a_factor_of_the_logits(factor):
    assert fit_temperature(*classified(factor)) == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize("samples", [20, 4000])
@pytest.mark.parametrize(("factor", "pseudo_samples"), [(3.0, 0), (0.3, 1)])
def test_the_fitted_temperature_is_a_minimum(factor, pseudo_samples, samples):
    """It minimises the NLL of all samples and, where it sharpens, of one more, whose class may be any."""
    prediction, target = classified(factor, samples)
    best = fit_temperature(prediction, target)

    def loss(temperature):
        logs = with_temperature(prediction, temperature).log_probabilities
        return sum(-logs[range(samples), target]).item() - pseudo_samples * logs.mean().item()

    assert (best > 1) == (pseudo_samples == 0)
    assert loss(best) < min(loss(best * 1.01), loss(best / 1.01))


def test_the_pseudo_sample_does_not_soften_where_every_label_is_right():
    """The losses of 60 sure and right predictions are smaller than its own."""
    logits = 12 * torch.nn.functional.one_hot(torch.arange(60) % 5, 5).double()
    prediction = Categorical().prediction(logits.unsqueeze(0))
    assert fit_temperature(prediction, prediction.labels) == 1.0


def test_temperature_one_changes_nothing_and_no_temperature_changes_labels():
    prediction, _ = classified()
    assert_close(with_temperature(prediction, 1.0).probabilities, prediction.probabilities)
    assert_close(with_temperature(prediction, 7.0).labels, prediction.labels)


def test_without_a_mistake_the_temperature_falls_and_stays_away_from_zero():
    """More samples without a mistake are more evidence that the network is not sure enough."""
    found = []
    for samples in (10, 100, 1000):
        prediction, _ = classified(samples=samples)
        found.append(fit_temperature(prediction, prediction.labels))
    assert 1 > found[0] > found[1] > found[2] > 0.02


def test_a_position_without_a_class_is_left_out():
    prediction, target = classified(3.0, 40)
    dense = Categorical().prediction(prediction.log_probabilities.T.reshape(1, 1, 5, 40).expand(1, 2, 5, 40))
    twice = torch.stack((target, torch.full_like(target, -100)))
    assert fit_temperature(dense, twice) == pytest.approx(fit_temperature(prediction, target), rel=1e-6)


@pytest.mark.parametrize("labels", [(), (1,), (3,)])
def test_temperature_of_yes_or_no_is_that_of_scipy(labels):
    """One logit, one logit on an axis of its own, and several labels."""
    generator = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(3, 400, *labels, generator=generator, dtype=torch.float64)
    prediction = Bernoulli().prediction(logits / 3)
    target = torch.bernoulli(logits.mean(0).sigmoid(), generator=generator)
    mean = (logits / 3).sigmoid().mean(0)

    def loss(temperature):
        """Return the NLL of the mean probability of yes, which the temperature makes sigmoid(logit / T)."""
        yes = (mean.logit() / temperature).sigmoid()
        right = torch.where(target > 0, yes, 1 - yes)
        return -(right.log().sum() + (yes.log() + (1 - yes).log()).mean() / 2).item()

    expected = minimize_scalar(loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-9}).x
    assert fit_temperature(prediction, target) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("likelihood", [Categorical(), Bernoulli()])
def test_temperature_leaves_mutual_information_and_expected_entropy(likelihood):
    outputs = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    raw = likelihood.prediction(outputs)
    scaled = with_temperature(raw, 2.5)
    assert (scaled.entropy > raw.entropy).all()
    assert (scaled.mutual_information > 0).all()
    assert_close(scaled.mutual_information, raw.mutual_information)
    assert_close(scaled.expected_entropy, raw.expected_entropy)
    assert_close(scaled.raw.probabilities, raw.probabilities)


def test_temperature_below_one_needs_corrupted_data_on_which_it_does_no_harm():
    unsure, target = classified(0.25)
    sure, _ = classified(3.0)
    assert safe_temperature(2.0, None, None) == (2.0, "")
    assert safe_temperature(0.5, None, None) == (
        1.0,
        "The temperature stays at 1, though 0.5 fits clean validation data: "
        "there is no corrupted data to try it on.",
    )
    assert safe_temperature(0.5, unsure, target) == (0.5, "")
    kept, note = safe_temperature(0.5, sure, target)
    assert kept == 1.0
    assert "on corrupted data that raises the NLL from" in note


def test_temperature_that_is_too_sharp_for_corrupted_data_is_the_one_that_fits_it():
    corrupted, target = classified(0.7)
    kept, note = safe_temperature(0.2, corrupted, target)
    assert kept == fit_temperature(corrupted, target) == pytest.approx(0.7, rel=0.05)
    assert "though 0.2 fits clean validation data" in note
    assert nll(with_temperature(corrupted, kept), target) < nll(corrupted, target)
