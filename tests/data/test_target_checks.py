"""Targets: probabilities of classes, weights of classes, missing numbers."""

import pytest
import torch

from pluribus.data import Split, Task
from pluribus.data.batch import Batch
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Bernoulli, Gaussian
from pluribus.mechanisms.network.inputs import Inputs

X, Y = torch.randn(8, 2), torch.arange(8) % 2
SOFT = torch.tensor([[0.2, 0.8], [1.0, 0.0]]).repeat(4, 1)


def task(y, **settings):
    split = Split(X, y)
    return Task("mine", split, split, split, **settings)


def test_probabilities_are_targets():
    assert task(SOFT, classes=2).outputs == 2
    with pytest.raises(InputError, match="must have 3 classes on axis 1, got shape"):
        task(SOFT, classes=3)
    with pytest.raises(InputError, match="sum to one over the classes, got sums from 2 to 2"):
        task(2 * SOFT, classes=2)
    with pytest.raises(InputError, match="got none for class 1"):
        task(torch.tensor([[1.0, 0.0]]).repeat(8, 1), classes=2)


def test_missing_numbers_are_allowed_where_a_sample_has_several():
    y = torch.rand(8, 2)
    y[3, 1] = torch.nan
    for law in (Gaussian(), Bernoulli()):
        task(y, likelihood=law)
        with pytest.raises(InputError, match="finite"):
            task(y[:, 1:], likelihood=law)


def test_class_weights_become_weights_of_samples():
    found = task(Y, classes=2, class_weights=(1.0, 3.0))
    batch = Batch(Inputs.of(X[:2]), Y[:2], torch.tensor([2.0, 2.0]))
    assert found.training_weights(batch).tolist() == [2.0, 6.0]
    assert found.training_weights(Batch(Inputs.of(X[:2]), SOFT[:2])).tolist() == pytest.approx([2.6, 1.0])
    dense = Batch(Inputs.of(X[:2]), torch.tensor([[0, -100], [1, 1]]), torch.tensor([1.0, 0.5]))
    assert found.training_weights(dense).tolist() == [[1.0, 0.0], [1.5, 1.5]]
    assert task(Y, classes=2).training_weights(batch) is batch.weights


@pytest.mark.parametrize("weights", [(1.0,), (1.0, -1.0), (1.0, float("inf"))])
def test_wrong_class_weights_are_refused(weights):
    with pytest.raises(SettingError, match="class_weights must be 2 numbers of at least 0"):
        task(Y, classes=2, class_weights=weights)
    with pytest.raises(SettingError, match="class_weights must be none for Gaussian"):
        task(Y[:, None].float(), likelihood=Gaussian(), class_weights=(1.0, 2.0))
