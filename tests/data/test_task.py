"""Tasks: batches, outputs, units, and data that is refused before training."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader

import pluribus as pl
from pluribus.comparison.comparison import compare
from pluribus.comparison.evaluation import evaluate
from pluribus.data import Split, Task
from pluribus.data.scaling import Scaling
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Point
from pluribus.methods import Single
from pluribus.training import train


def classified(count=12, classes=3):
    return Split(torch.randn(count, 4), torch.arange(count) % classes)


def measured(count=12, targets=2):
    return Split(torch.randn(count, 4), torch.rand(count, targets))


def task(make=classified, **changes):
    likelihood = Categorical() if make is classified else Gaussian()
    facts = {"name": "toy", "train": make(), "validation": make(6), "test": make(6), "likelihood": likelihood}
    return Task(**facts | {"classes": 3 if make is classified else None} | changes)


def test_a_likelihood_may_be_named():
    named = task(make=measured, likelihood="gaussian")
    assert named.likelihood == Gaussian()
    assert named.fingerprint != task(make=measured, likelihood="point").fingerprint
    with pytest.raises(SettingError, match="likelihood must be one of"):
        task(likelihood="gausian")


def test_batches_cover_the_samples_in_order():
    split = Split(torch.arange(7)[:, None], torch.arange(7))
    sizes = [len(y) for _, y in split.batches(3)]
    assert sizes == [3, 3, 1]
    assert_close(torch.cat([y for _, y in split.batches(3)]), torch.arange(7), rtol=0, atol=0)
    assert list(split.take(torch.arange(0)).batches(3)) == []


def test_shuffled_batches_keep_pairs_and_follow_the_generator():
    split = Split(torch.arange(50)[:, None], torch.arange(50))
    orders = []
    for seed in (0, 0, 1):
        pairs = list(split.batches(8, torch.Generator().manual_seed(seed)))
        assert all(torch.equal(x.flatten(), y) for x, y in pairs)
        orders.append(torch.cat([y for _, y in pairs]).tolist())
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[2]) == list(range(50))


def test_a_split_is_a_dataset():
    split = classified(10)
    x, y = next(iter(DataLoader(split, batch_size=4)))
    assert_close(x, split.x[:4])
    assert_close(y, split.y[:4])


def test_batches_of_nothing_are_refused():
    with pytest.raises(SettingError, match="size must be at least 1, got 0"):
        next(classified().batches(0))


@pytest.mark.parametrize(
    ("make", "changes", "outputs"),
    [
        (classified, {}, 3),
        (measured, {}, 4),
        (measured, {"likelihood": Gaussian(precision=2.0)}, 2),
        (measured, {"likelihood": Point()}, 2),
        (measured, {"likelihood": Bernoulli()}, 2),
    ],
)
def test_outputs_fit_the_likelihood(make, changes, outputs):
    one = task(make, **changes)
    assert one.outputs == outputs
    assert one.input_shape == (4,)
    loss = one.likelihood.losses(torch.zeros(5, len(one.test), outputs), one.test.y)
    assert loss.shape == (5, len(one.test))


def test_a_task_prints_its_facts():
    parts, sets = "12 train, 6 validation, 6 test", "0 shifted, out of distribution: none"
    assert repr(task()) == f"Task(toy: {parts}; inputs [4]; 3 classes; {sets})"


def test_predictions_are_told_in_units():
    one = task(measured, target_scaling=Scaling(torch.tensor([10.0, 0.0]), torch.tensor([2.0, 0.5])))
    outputs = torch.randn(3, 6, 4, dtype=torch.float64)
    prediction = one.likelihood.prediction(outputs)
    told = one.in_units(prediction)
    assert_close(told.mean, prediction.mean * torch.tensor([2.0, 0.5]) + torch.tensor([10.0, 0.0]))
    assert_close(told.variance, prediction.variance * torch.tensor([4.0, 0.25]))
    density = told.log_prob(one.target_scaling.invert(one.test.y.double()))
    assert_close(density, prediction.log_prob(one.test.y) - torch.tensor([2.0, 0.5]).double().log())
    points = Point().prediction(outputs[:, :, :2])
    assert_close(one.in_units(points).epistemic, points.epistemic * torch.tensor([4.0, 0.25]))


def test_classes_have_no_units():
    prediction = Categorical().prediction(torch.randn(2, 6, 3))
    assert task().in_units(prediction) is prediction


def spoilt(split, **changes):
    """A split with one value of `x` or `y` replaced."""
    parts = {"x": split.x.clone(), "y": split.y.clone()}
    for name, (place, value) in changes.items():
        parts[name][place] = value
    return Split(**parts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train": spoilt(classified(), x=((2, 1), torch.nan))},
            "train inputs must be finite, but 1 of 48 are NaN or infinite. Drop these samples",
        ),
        (
            {"test": spoilt(classified(), y=(4, 3))},
            "test labels must lie in 0 to 2, got 3 at sample 4. Number the classes from 0",
        ),
        ({"validation": spoilt(classified(), y=(0, -100))}, "validation labels must lie in 0 to 2"),
        (
            {"train": Split(torch.zeros(4, 4), torch.tensor([0, 0, 2, 2]))},
            "each of 3 classes must have training samples, got none for class 1",
        ),
        (
            {"train": Split(torch.zeros(2, 4), torch.tensor([0, 2])), "class_names": ("ant", "bee", "cat")},
            "got none for class bee",
        ),
        ({"train": Split(torch.zeros(3, 4), torch.arange(3.0))}, "train labels must be int64, got "),
        (
            {"test": Split(torch.zeros(3, 5), torch.arange(3))},
            r"test inputs must have the shape \[4\] of the training inputs, got \[5\]",
        ),
        ({"test": classified(0)}, "toy must have training and test samples, got 12 and 0"),
        ({"classes": None}, "classes must be a whole number, at least 2, for Categorical"),
        ({"class_names": ("ant", "bee")}, "class_names must be 3 names or none"),
        ({"likelihood": Gaussian()}, "classes must be None for Gaussian, got 3"),
    ],
)
def test_what_cannot_be_learnt_is_refused(changes, message):
    with pytest.raises((InputError, SettingError), match=message):
        task(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"train": spoilt(measured(), y=((2, 1), torch.inf))},
            "train targets must be finite, but 1 of 24",
        ),
        ({"test": classified()}, "test targets must be floats, got torch.int64"),
        (
            {"test": spoilt(measured(), y=((0, 0), 2.0)), "likelihood": Bernoulli()},
            r"test targets must lie in 0 to 1 for Bernoulli, got numbers from \S+ to 2",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        task(measured, **changes)


@pytest.mark.parametrize("given", [None, (torch.zeros(4, 2), torch.zeros(4).long())])
def test_verbs_that_need_a_task_refuse_anything_else(given):
    ensemble = pl.convert(nn.Linear(2, 2), Single())
    for verb in (train, evaluate):
        with pytest.raises(InputError, match=f"task must be a Task, got {type(given).__name__}"):
            verb(ensemble, given)
    with pytest.raises(InputError, match="task must be a Task"):
        compare(lambda: nn.Linear(2, 2), given, [Single()])


def test_unequal_lengths_are_refused():
    with pytest.raises(InputError, match="a row per sample, got 3 and 2 rows"):
        Split(torch.zeros(3, 1), torch.zeros(2))


def test_dense_targets_may_leave_out_positions():
    y = torch.arange(12).reshape(3, 2, 2) % 3
    y[0, 0, 0] = -100
    split = Split(torch.zeros(3, 1, 2, 2), y)
    assert task(train=split, validation=split, test=split).outputs == 3


def test_a_likelihood_can_be_exchanged():
    assert replace(task(measured), likelihood=Point()).outputs == 2


def test_a_table_calls_classes_by_their_names():
    named = task(class_names=("cat", "dog", "emu"))
    logits = torch.tensor([[[3.0, 0.0, 0.0], [0.0, 0.0, 3.0]]])
    columns = named.table(Categorical().prediction(logits))
    assert columns["labels"] == ["cat", "emu"]
    assert [name for name in columns if name.startswith("p")] == ["p_cat", "p_dog", "p_emu"]
    assert columns["p_emu"][1] == columns["p_cat"][0] > 0.9
    assert task().table(Categorical().prediction(logits))["labels"] == [0, 2]


def test_names_of_features_are_one_for_each():
    with pytest.raises(SettingError, match=r"feature_names must be one for each number of an input \[4\]"):
        task(feature_names=("a", "b"))
