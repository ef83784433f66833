"""Likelihoods: losses against scipy and slow loops, alignment, refusals, settings."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from torch.testing import assert_close

from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, Point, likelihood
from pluribus.prediction import (
    BernoulliPrediction,
    CategoricalPrediction,
    GaussianPrediction,
    PointPrediction,
    align,
)

ALL = [Categorical(), Bernoulli(), Gaussian(), Gaussian(precision=4.0), Point()]


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def fitting(value, batch, seed=1):
    """Zeros and ones in the shape of targets for outputs `[members, batch, 2]`."""
    target = (normal(batch, 1 if value == Gaussian() else 2, seed=seed) > 0).double()
    return target[:, 0].long() if value == Categorical() else target


def test_categorical_loss_is_minus_the_log_probability_of_the_class():
    logits, target = normal(3, 5, 4), torch.tensor([0, 3, 1, 2, 3])
    logs = special.log_softmax(logits.numpy(), axis=2)
    expected = [[-logs[m, b, target[b]] for b in range(5)] for m in range(3)]
    assert_close(Categorical().losses(logits, target), torch.tensor(np.array(expected)))


def test_dense_categorical_loss_averages_the_positions_that_count():
    logits, target = (
        normal(2, 3, 4, 2, 2),
        torch.tensor([0, 3, 1, 2, 3, 0, 1, 1, 2, 0, 0, 3]).reshape(3, 2, 2),
    )
    target[0, 0, 1] = -100
    target[2] = -100
    logs = special.log_softmax(logits.numpy(), axis=2)
    expected = torch.zeros(2, 3, dtype=torch.float64)
    for m, b in np.ndindex(2, 3):
        counted = [(h, w) for h, w in np.ndindex(2, 2) if target[b, h, w] != -100]
        expected[m, b] = np.mean([-logs[m, b, target[b, h, w], h, w] for h, w in counted]) if counted else 0
    assert_close(Categorical().losses(logits, target), expected)


def test_ignored_positions_have_no_gradient():
    logits = normal(2, 2, 3, 2).requires_grad_()
    Categorical().losses(logits, torch.tensor([[-100, -100], [1, -100]])).sum().backward()
    assert_close(logits.grad[:, 0], torch.zeros(2, 3, 2, dtype=torch.float64))
    assert_close(logits.grad[:, 1, :, 1], torch.zeros(2, 3, dtype=torch.float64))
    assert (logits.grad[:, 1, :, 0] != 0).all()


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 2, 3)])
def test_one_hot_indices_are_refused_with_a_remedy(shape):
    logits, target = torch.randn(2, 5, 4, *shape), torch.zeros(5, 4, *shape, dtype=torch.long)
    with pytest.raises(InputError, match=r"as one-hot targets have\. Use target\.argmax\(1\)"):
        Categorical().losses(logits, target)


@pytest.mark.parametrize("shape", [(5, 4), (5, 4, 2, 3)])
def test_one_hot_probabilities_give_the_loss_of_the_index(shape):
    logits, target = normal(3, *shape), normal(*shape, seed=1).argmax(1)
    one_hot = torch.nn.functional.one_hot(target, 4).movedim(-1, 1).float()
    assert_close(Categorical().losses(logits, one_hot), Categorical().losses(logits, target))


def test_soft_targets_give_the_cross_entropy():
    logits, target = normal(3, 5, 4), normal(5, 4, seed=1).softmax(1)
    expected = -(target * logits.log_softmax(2)).sum(2)
    assert_close(Categorical().losses(logits, target), expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64])
def test_class_indices_may_be_any_integers(dtype):
    logits, target = normal(3, 4, 2), torch.tensor([0, 1, 1, 0])
    assert_close(Categorical().losses(logits, target.to(dtype)), Categorical().losses(logits, target))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32])
def test_bernoulli_loss_is_minus_the_log_probability_of_the_answer(dtype):
    logits, target = normal(3, 5), torch.tensor([1, 0, 0, 1, 1]).to(dtype)
    p = special.expit(logits.numpy())
    expected = -stats.bernoulli.logpmf(target.numpy().astype(int), p)
    assert_close(Bernoulli().losses(logits, target), torch.tensor(expected))


def test_multilabel_bernoulli_loss_averages_the_labels():
    logits, target = normal(3, 5, 4), (normal(5, 4, seed=1) > 0).double()
    each = [Bernoulli().losses(logits[..., k], target[:, k]) for k in range(4)]
    assert_close(Bernoulli().losses(logits, target), torch.stack(each).mean(0))


def test_gaussian_loss_is_minus_the_log_density():
    outputs, target = normal(3, 5, 4), normal(5, 2, seed=1)
    means, raw = outputs.numpy()[:, :, :2], outputs.numpy()[:, :, 2:]
    variances = np.log1p(np.exp(raw)) + 1e-6
    expected = -stats.norm.logpdf(target.numpy(), means, np.sqrt(variances)).mean(2)
    assert_close(Gaussian().losses(outputs, target), torch.tensor(expected))


def test_gaussian_loss_of_a_given_precision_is_minus_the_log_density():
    outputs, target = normal(3, 5), normal(5, seed=1)
    expected = -stats.norm.logpdf(target.numpy(), outputs.numpy(), 0.5)
    assert_close(Gaussian(precision=4.0).losses(outputs, target), torch.tensor(expected))


def test_dense_gaussian_outputs_have_means_then_variances_on_the_channel_axis():
    outputs, target = normal(3, 5, 4, 2, 2), normal(5, 2, 2, 2, seed=1)
    each = [Gaussian().losses(outputs[..., h, w], target[..., h, w]) for h in range(2) for w in range(2)]
    assert_close(Gaussian().losses(outputs, target), torch.stack(each).mean(0))


def test_point_loss_is_the_squared_error():
    outputs, target = normal(3, 5, 2), normal(5, 2, seed=1)
    expected = ((outputs.numpy() - target.numpy()) ** 2).mean(2)
    assert_close(Point().losses(outputs, target), torch.tensor(expected))


@pytest.mark.parametrize("value", ALL, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_losses_are_finite_float32(value, dtype):
    outputs = torch.full((2, 3, 2), -60.0, dtype=dtype, requires_grad=True)  # softplus(-60) is 0 in float16
    target = fitting(value, 3) if isinstance(value, Categorical | Bernoulli) else 0 * fitting(value, 3) - 60
    losses = value.losses(outputs, target)
    losses.sum().backward()
    assert losses.dtype == torch.float32
    assert losses.isfinite().all()
    assert outputs.grad.isfinite().all()


def test_losses_under_autocast_are_those_of_float32():
    outputs, target = normal(3, 5, 4, dtype=torch.float32), normal(5, 2, seed=1, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = Gaussian().losses(outputs, target), Categorical().losses(outputs, target[:, 0].relu().long())
    outside = Gaussian().losses(outputs, target), Categorical().losses(outputs, target[:, 0].relu().long())
    assert_close(inside, outside)


@pytest.mark.parametrize("value", [Categorical(), Bernoulli()], ids=repr)
def test_extreme_logits_have_a_finite_loss(value):
    outputs = torch.tensor([[[1e4, -1e4]], [[-1e4, 1e4]]])
    target = torch.tensor([0]) if value == Categorical() else torch.tensor([[1, 0]])
    expected = {Categorical(): [[0.0], [2e4]], Bernoulli(): [[0.0], [1e4]]}[value]
    assert_close(value.losses(outputs, target), torch.tensor(expected))


@pytest.mark.parametrize("value", [Bernoulli(), Gaussian(precision=1.0), Point()], ids=repr)
@pytest.mark.parametrize(
    ("outputs", "target"), [((4,), (4, 1)), ((4, 1), (4,)), ((4, 3), (4, 1, 3)), ((1, 1), (1,))]
)
def test_axes_of_size_one_are_aligned_and_not_broadcast(value, outputs, target):
    numbers, truth = normal(2, *outputs), (normal(*target, seed=1) > 0).double()
    assert_close(value.losses(numbers, truth), value.losses(numbers, truth.reshape(outputs)))


def test_one_mean_and_variance_per_sample_take_a_flat_target():
    outputs, target = normal(2, 4, 2), normal(4, seed=1)
    assert_close(Gaussian().losses(outputs, target), Gaussian().losses(outputs, target[:, None]))


def test_class_indices_may_have_a_trailing_axis_of_one():
    logits, target = normal(2, 4, 3), torch.tensor([0, 1, 2, 0])
    assert_close(Categorical().losses(logits, target[:, None]), Categorical().losses(logits, target))


@pytest.mark.parametrize(
    ("given", "shape"),
    [((3,), (4,)), ((4, 2), (4,)), ((4,), (4, 2)), ((2, 4), (4, 2)), ((1,), (4,)), ((), (1,))],
)
def test_other_shapes_are_refused_with_both(given, shape):
    with pytest.raises(InputError, match=r"targets must have shape .*, got shape") as error:
        align(torch.zeros(given), shape)
    assert str(tuple(given)) in str(error.value)
    assert str(tuple(shape)) in str(error.value)


@pytest.mark.parametrize(
    ("value", "outputs", "target", "message"),
    [
        (
            Categorical(),
            normal(4),
            torch.zeros(4).long(),
            r"\[members, batch, \.\.\.\].*got shape \(4,\)",
        ),
        (Point(), normal(0, 4), torch.zeros(4), r"at least 1 member, got shape \(0, 4\)"),
        (Categorical(), normal(2, 4), torch.zeros(4).long(), r"at least 2 classes, got shape \(2, 4\)"),
        (Categorical(), normal(2, 4, 1), torch.zeros(4).long(), r"got shape \(2, 4, 1\).*Bernoulli"),
        (Categorical(), normal(2, 4, 3), torch.zeros(3).long(), r"shape \(4,\).*got shape \(3,\)"),
        (Categorical(), normal(2, 4, 3), torch.zeros(4, 3).long(), r"shape \(4,\).*got shape \(4, 3\)"),
        (Categorical(), normal(2, 2, 3), torch.tensor([0, 3]), r"0 to 2, got 3\. Number the classes"),
        (Categorical(), normal(2, 2, 3), torch.tensor([0, -1]), r"0 to 2, got -1\."),
        (Categorical(), normal(2, 2, 3), torch.tensor([0, -100]), r"0 to 2, got -100\."),
        (
            Categorical(),
            normal(2, 1, 3, 2),
            torch.tensor([[0, 3]]),
            r"0 to 2, or be -100 to be ignored, got 3",
        ),
        (
            Categorical(),
            normal(2, 4, 3),
            torch.zeros(4),
            r"whole numbers.*got torch.float32.*target.long\(\)",
        ),
        (Categorical(), normal(2, 4, 3), torch.zeros(4, 3), r"sum to one.*but .* sum to 0 to 0"),
        (Categorical(), normal(2, 4, 3), torch.tensor([[2.0, -1, 0]]).expand(4, 3), "they start at -1"),
        (Bernoulli(), normal(2, 4), torch.full((4,), 2), "0 to 1, got 2. Use Categorical"),
        (Bernoulli(), normal(2, 4), torch.full((4,), math.nan), "0 to 1, got nan"),
        (Bernoulli(), normal(2, 4, 3), torch.zeros(4), r"shape \(4, 3\).*got shape \(4,\)"),
        (
            Gaussian(),
            normal(2, 4, 3),
            torch.zeros(4),
            r"even number, got shape \(2, 4, 3\).*two outputs",
        ),
        (Gaussian(), normal(2, 4), torch.zeros(4), r"even number, got shape \(2, 4\)"),
        (Gaussian(), normal(2, 4, 2), torch.tensor([0, 0, 0, math.inf]), "finite, but 1 of 4 .* Drop"),
        (Point(), normal(2, 4), torch.full((4,), math.nan), "finite, but 4 of 4"),
        (Point(), normal(2, 4, 4), torch.zeros(4), r"shape \(4, 4\).*got shape \(4,\)"),
    ],
)
def test_what_does_not_fit_is_refused(value, outputs, target, message):
    with pytest.raises(InputError, match=message):
        value.losses(outputs, target)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Categorical(), CategoricalPrediction),
        (Bernoulli(), BernoulliPrediction),
        (Gaussian(), GaussianPrediction),
        (Gaussian(precision=4.0), GaussianPrediction),
        (Point(), PointPrediction),
    ],
    ids=repr,
)
def test_a_prediction_keeps_the_outputs_and_weighs_members_alike(value, kind):
    outputs = normal(4, 3, 2)
    prediction = value.prediction(outputs)
    assert type(prediction) is kind
    assert_close(prediction.members, outputs, rtol=0, atol=0)
    assert_close(prediction.weights, torch.full((4,), 0.25, dtype=torch.float64))


@pytest.mark.parametrize("value", ALL, ids=repr)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_outputs_that_are_not_finite_are_counted_and_refused(value, bad):
    outputs = normal(2, 3, 2)
    outputs[1, 2, 0] = bad
    with pytest.raises(
        InputError, match=r"but 1 of 12 are NaN or infinite. Lower the learning rate or normalise"
    ):
        value.prediction(outputs)


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], [[0.5, 0.5]]])
def test_weights_that_are_no_distribution_over_members_are_refused(weights):
    with pytest.raises(InputError, match="2 numbers of at least 0 that sum to one, got "):
        Point().prediction(normal(2, 3), torch.tensor(weights))


def test_rounded_weights_lose_no_probability():
    weights = torch.full((3,), 1 / 3, dtype=torch.float16)
    prediction = Categorical().prediction(normal(3, 5, 4), weights)
    assert_close(prediction.weights.sum(), torch.tensor(1.0, dtype=torch.float64))
    assert_close(prediction.probabilities.sum(1), torch.ones(5, dtype=torch.float64))


def test_learnt_weights_receive_a_gradient():
    weights = torch.tensor([0.0, 1.0], requires_grad=True)
    Categorical().prediction(normal(2, 5, 4), weights.softmax(0)).probabilities[:, 0].sum().backward()
    assert (weights.grad != 0).all()


@pytest.mark.parametrize("value", ALL, ids=repr)
def test_an_empty_batch_has_no_losses_and_an_empty_prediction(value):
    assert value.losses(normal(3, 0, 2), fitting(value, 0)).shape == (3, 0)
    assert len(value.prediction(normal(3, 0, 2))) == 0


@pytest.mark.parametrize("value", ALL, ids=repr)
def test_a_plain_dict_gives_back_the_likelihood(value):
    assert Likelihood.from_dict(value.to_dict()) == value


def test_a_dict_says_kind_version_and_settings():
    assert Gaussian(precision=4.0).to_dict() == {"kind": "gaussian", "version": 1, "precision": 4.0}


@pytest.mark.parametrize("name", ["categorical", "bernoulli", "gaussian", "point"])
def test_a_name_finds_the_likelihood(name):
    assert likelihood(name).kind() == name


def test_a_likelihood_stands_for_itself():
    assert likelihood(Gaussian(precision=2.0)) == Gaussian(precision=2.0)


@pytest.mark.parametrize("name", ["Gausian", "gauss", None, 3])
def test_an_unknown_name_is_refused(name):
    with pytest.raises(SettingError, match="one of categorical, bernoulli, gaussian, point, got "):
        likelihood(name)


def test_a_near_name_is_suggested():
    with pytest.raises(SettingError, match="Did you mean 'categorical'"):
        likelihood("categorial")


@pytest.mark.parametrize("precision", [0, -1.0, math.nan, math.inf, "1", True])
def test_an_impossible_precision_is_refused(precision):
    with pytest.raises(SettingError, match=r"precision must be .*, got "):
        Gaussian(precision=precision)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10**6), members=st.integers(1, 5), batch=st.integers(1, 5))
@pytest.mark.parametrize("value", ALL, ids=repr)
def test_the_loss_of_a_member_depends_on_that_member_alone(value, seed, members, batch):
    outputs = normal(members, batch, 2, seed=seed)
    target = fitting(value, batch, seed=seed + 1)
    alone = torch.cat([value.losses(outputs[m : m + 1], target) for m in range(members)])
    assert_close(value.losses(outputs, target), alone)


@pytest.mark.parametrize("law", [Gaussian(), Gaussian(precision=4.0), Point(), Bernoulli()], ids=str)
def test_missing_targets_are_left_out_of_the_mean(law):
    outputs = normal(3, 5, 4 if law == Gaussian() else 2)
    target = (normal(5, 2, seed=1) > 0).double()
    target[1, 0] = target[3, 1] = math.nan
    target[4] = math.nan
    found = law.losses(outputs, target)
    each = [0, 2] if law == Gaussian() else [0]
    for sample, column in ((1, 1), (3, 0)):
        alone = law.losses(outputs[:, :, [column + skip for skip in each]], target.nan_to_num(0)[:, [column]])
        assert_close(found[:, sample], alone[:, sample])
    assert_close(found[:, [0, 2]], law.losses(outputs, target.nan_to_num(0))[:, [0, 2]])
    assert_close(found[:, 4], torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("law", [Categorical(), Bernoulli(), Gaussian(precision=4.0), Point()], ids=str)
def test_weights_of_positions_weight_the_mean_of_a_sample(law):
    classes = (4,) if law == Categorical() else ()
    outputs = normal(2, 3, *classes, 6)
    target = (normal(3, 6, seed=1) > 0).double()
    if classes:
        target = target.long()
        target[0, 2] = -100
    weights = torch.tensor([0.0, 0.0, 1.0, 3.0, 0.0, 0.0], dtype=torch.float64).expand(3, 6)
    alone = [law.losses(outputs[..., [place]], target[:, [place]]) for place in (2, 3)]
    expected = alone[0] / 4 + alone[1] * 3 / 4
    if classes:
        expected[:, 0] = alone[1][:, 0]
    assert_close(law.losses(outputs, target, weights), expected)
