"""Samples: positions one by one, ignored ones left out, refusals."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Point
from pluribus.metrics.samples import average, exact, flat, samples
from tests.metrics.examples import answers, classes, mixed, normal, numbers, points


def test_every_pixel_is_a_sample_with_its_own_target():
    prediction, target = classes(2, 3, 4, 5)
    flattened, labels = samples(prediction, target)
    assert flattened.members.shape == (3, 40, 3)
    for i, (b, h, w) in enumerate(np.ndindex(2, 4, 5)):
        assert_close(flattened.log_probabilities[i], prediction.log_probabilities[b, :, h, w])
        assert_close(flattened.members[:, i], prediction.members[:, b, :, h, w])
        assert labels[i] == target[b, h, w]


def test_every_label_is_a_sample_with_the_outcomes_no_and_yes():
    prediction, target = answers(6, 5)
    flattened, labels = samples(prediction, target)
    assert_close(flattened.members, prediction.members.flatten(1))
    assert_close(flattened.probabilities, prediction.probabilities.flatten())
    assert_close(labels, target.long().flatten())


@pytest.mark.parametrize(
    "name", ["labels", "confidence", "max_logit", "entropy", "mutual_information", "variation_ratio"]
)
@pytest.mark.parametrize(
    "prediction", [classes(3, 4, 2, 2)[0], answers(3, 2, 2)[0]], ids=["classes", "answers"]
)
def test_summaries_stay_what_they_were(prediction, name):
    assert_close(getattr(flat(prediction), name), getattr(prediction, name).flatten())


def test_ignored_positions_are_left_out():
    prediction, target = classes(4, 3, 5)
    target[1, 2] = target[3] = -100
    counted = torch.tensor([(b, w) for b, w in np.ndindex(4, 5) if target[b, w] != -100])
    flattened, labels = samples(prediction, target)
    assert_close(labels, target[counted[:, 0], counted[:, 1]])
    assert_close(flattened.probabilities, prediction.probabilities[counted[:, 0], :, counted[:, 1]])


def test_targets_may_have_axes_of_size_one_and_be_of_any_whole_dtype():
    prediction, target = answers(7, 1)
    for given in (target.flatten(), target.bool(), target.to(torch.uint8), target.float()):
        assert_close(samples(prediction, given)[1], target.flatten().long())


@pytest.mark.parametrize("made", [classes(9), answers(9), numbers(9, 2), points(9)])
def test_samples_of_samples_are_the_same_objects(made):
    first = samples(*made)
    assert first[0] is made[0]
    assert samples(*first)[0] is first[0]
    assert_close(samples(*first)[1], first[1])


def test_numbers_keep_their_axes_and_take_the_dtype_of_the_means():
    prediction = mixed(Gaussian(), 2, 5, 4, dtype=torch.float32)
    same, target = samples(prediction, torch.arange(10).reshape(5, 2))
    assert same is prediction
    assert_close(target, torch.arange(10.0).reshape(5, 2))


@pytest.mark.parametrize(
    ("likelihood", "shape", "target", "message"),
    [
        (Categorical(), (2, 3, 4), torch.tensor([0, 1, 4]), r"0 to 3, got 4\."),
        (Categorical(), (2, 3, 4), torch.tensor([0, 1]), r"shape \(3,\).*got shape \(2,\)"),
        (Categorical(), (2, 3, 4), torch.tensor([0, 1, -100]), r"0 to 3, got -100\."),
        (
            Categorical(),
            (2, 3, 4),
            torch.full((3, 4), 0.25),
            r"class indices, got .*Use target.argmax\(1\)",
        ),
        (Categorical(), (2, 3, 4, 2), torch.full((3, 2), -100), "at least 1 sample with a target, got none"),
        (Categorical(), (2, 0, 4), torch.zeros(0).long(), "at least 1 sample with a target, got none"),
        (Bernoulli(), (2, 3), torch.tensor([0, 1, 2]), r"0 to 1, got 2\."),
        (Bernoulli(), (2, 3), torch.tensor([0, 1, 0.3]), r"no and yes, 0 and 1, got 0\.3\."),
        (Point(), (2, 3), torch.tensor([0, 1, torch.nan]), "finite, but 1 of 3"),
        (Point(), (2, 3), torch.zeros(3, 2), r"shape \(3,\).*got shape \(3, 2\)"),
        (Point(), (2, 0), torch.zeros(0), "at least 1 sample with a target, got none"),
    ],
)
def test_targets_that_do_not_fit_are_refused(likelihood, shape, target, message):
    with pytest.raises(InputError, match=message):
        samples(likelihood.prediction(torch.zeros(shape)), target)


def test_an_average_of_many_small_floats_is_summed_in_double_precision():
    values = torch.full((3_000_001,), 0.1)
    values[0] = 1e7
    assert_close(average(values), (1e7 + 3e6 * values[1].item()) / 3_000_001, rtol=1e-14, atol=0)


def test_exact_values_leave_the_graph():
    values = normal(3, dtype=torch.float32).requires_grad_()
    assert_close(exact(values), values.detach().double())
    assert not exact(values).requires_grad


def test_missing_labels_are_left_out():
    prediction, target = answers(4, 3)
    target = target.float()
    target[1, 2] = target[3, 0] = torch.nan
    counted = ~target.isnan().flatten()
    flattened, labels = samples(prediction, target)
    assert_close(labels, target.flatten()[counted].long())
    assert_close(flattened.probabilities, prediction.probabilities.flatten()[counted])


@pytest.mark.parametrize("made", [numbers, points])
def test_numbers_with_missing_ones_are_samples_of_their_own(made):
    prediction, target = made(5, 2)
    target[1, 1] = torch.nan
    target[4] = torch.nan
    counted = ~target.isnan()
    flattened, found = samples(prediction, target)
    assert_close(found, target[counted])
    assert_close(flattened.mean, prediction.mean[counted])
    assert_close(flattened.std, prediction.std[counted])
    assert len(flattened) == 7
