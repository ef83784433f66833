"""Predictions: mixtures against scipy and closed forms, selection, joining, tables."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from torch.testing import assert_close

from pluribus.calibration_record import Calibration
from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Point
from pluribus.prediction import Prediction
from tests.cases import seeded

ALL = [Categorical(), Bernoulli(), Gaussian(), Gaussian(precision=4.0), Point()]
DISCRETE = [Categorical(), Bernoulli()]
DTYPES = [torch.float32, torch.float64]

quick = settings(deadline=None, max_examples=40)
mixtures = given(
    seed=st.integers(0, 10**6), members=st.integers(1, 6), size=st.integers(1, 3), scale=st.floats(0.01, 30)
)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def mixed(value, members, batch, *sizes, seed=0, scale=2.0, dtype=torch.float64):
    """A prediction with random outputs and weights."""
    weights = normal(members, seed=seed + 1, dtype=dtype).softmax(0)
    return value.prediction(scale * normal(members, batch, *sizes, seed=seed, dtype=dtype), weights)


def two_sided(*, distance=1.0, std=0.1, dtype=torch.float64):
    """Two members, N(±distance, std²)."""
    means = torch.tensor([[distance], [-distance]], dtype=dtype)
    return Gaussian(precision=1 / std**2).prediction(means)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(4,), (4, 2, 3)])
def test_categorical_summaries_are_those_of_numpy(dtype, sizes):
    prediction = mixed(Categorical(), 3, 5, *sizes, dtype=dtype)
    weights = prediction.weights.numpy()
    member = special.softmax(prediction.members.numpy(), axis=2)
    mean = np.tensordot(weights, member, axes=1)
    expected = np.tensordot(weights, stats.entropy(member, axis=2), axes=1)
    assert_close(prediction.member_probabilities, torch.tensor(member))
    assert_close(prediction.probabilities, torch.tensor(mean))
    assert_close(prediction.log_probabilities, torch.tensor(np.log(mean)))
    assert_close(prediction.labels, torch.tensor(mean.argmax(1)))
    assert_close(prediction.confidence, torch.tensor(mean.max(1)))
    assert_close(prediction.entropy, torch.tensor(stats.entropy(mean, axis=1)))
    assert_close(prediction.expected_entropy, torch.tensor(expected))
    assert_close(prediction.mutual_information, prediction.entropy - prediction.expected_entropy)
    logits = np.tensordot(weights, prediction.members.numpy(), axes=1)
    assert_close(prediction.max_logit, torch.tensor(logits.max(1)))


def test_variation_ratio_is_the_share_of_votes_against_the_majority():
    labels = torch.tensor([[0, 1, 2], [0, 1, 1], [0, 2, 0], [0, 2, 0]])
    prediction = Categorical().prediction(torch.nn.functional.one_hot(labels, 3).float())
    assert_close(prediction.member_labels, labels)
    assert_close(prediction.variation_ratio, torch.tensor([0.0, 0.5, 0.5]))
    weighted = Categorical().prediction(prediction.members, torch.tensor([0.7, 0.1, 0.1, 0.1]))
    assert_close(weighted.variation_ratio, torch.tensor([0.0, 0.2, 0.3]))


@pytest.mark.parametrize("members", range(1, 60))
def test_members_that_agree_have_no_variation_ratio(members):
    prediction = Categorical().prediction(torch.eye(2).expand(members, 2, 2))
    assert (prediction.variation_ratio >= 0).all()
    assert_close(prediction.variation_ratio, torch.zeros(2))


def test_members_that_vote_for_all_classes_have_the_greatest_variation_ratio():
    prediction = Categorical().prediction(torch.eye(5)[:, None])
    assert_close(prediction.variation_ratio, torch.tensor([0.8]))


@pytest.mark.parametrize("value", [Categorical(), Bernoulli()], ids=str)
def test_log_probabilities_of_members_follow_the_members(value):
    prediction = mixed(value, 3, 5, 4)
    # They are computed when first used, and then kept.
    assert "member_log_probabilities" not in vars(prediction)
    assert prediction.member_log_probabilities is prediction.member_log_probabilities
    some = prediction[1:3]
    assert_close(some.member_log_probabilities, prediction.member_log_probabilities[:, 1:3])


def test_probabilities_are_averaged_and_logits_are_not():
    prediction = Categorical().prediction(torch.tensor([[[9.0, 0.0]], [[0.0, 1.0]]]))
    mean = (special.expit(9) + special.expit(-1)) / 2
    assert_close(prediction.probabilities, torch.tensor([[mean, 1 - mean]]).float())


def test_sure_members_that_disagree_have_mutual_information_alone():
    prediction = Categorical().prediction(100 * torch.eye(4)[:, None])
    assert_close(prediction.mutual_information, torch.tensor([math.log(4)]))
    assert_close(prediction.expected_entropy, torch.tensor([0.0]))


def test_unsure_members_that_agree_have_expected_entropy_alone():
    prediction = Categorical().prediction(torch.zeros(3, 2, 4))
    assert_close(prediction.expected_entropy, torch.full((2,), math.log(4)))
    assert_close(prediction.mutual_information, torch.zeros(2))


@pytest.mark.parametrize("value", DISCRETE, ids=repr)
@pytest.mark.parametrize("size", [1e4, 3e38])
def test_extreme_logits_have_finite_summaries(value, size):
    prediction = value.prediction(torch.tensor([[[size, -size]], [[-size, size]], [[size, size]]]))
    for summary in prediction.numpy().values():
        assert np.isfinite(summary).all()


def test_an_underflowing_probability_keeps_its_logarithm():
    prediction = Categorical().prediction(torch.tensor([[[0.0, -1e4]], [[0.0, -1e3]]]))
    assert_close(prediction.probabilities, torch.tensor([[1.0, 0.0]]))
    assert_close(prediction.log_probabilities, torch.tensor([[0.0, -1e3 - math.log(2)]]))


def test_a_sure_answer_keeps_the_logarithm_of_its_opposite():
    prediction = Bernoulli().prediction(torch.tensor([[40.0, -40.0]]))
    assert_close(prediction.probabilities, torch.tensor([1.0, 0.0]))
    assert_close(prediction.log_probabilities, torch.tensor([[-40.0, 0.0], [0.0, -40.0]]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(), (1,), (4,), (3, 2)])
def test_bernoulli_is_categorical_with_logits_of_zero_and_its_own(dtype, sizes):
    prediction = mixed(Bernoulli(), 3, 5, *sizes, dtype=dtype)
    pairs = torch.stack((torch.zeros_like(prediction.members), prediction.members), 2)
    twin = Categorical().prediction(pairs, prediction.weights)
    assert_close(prediction.probabilities, twin.probabilities[:, 1])
    assert_close(prediction.member_probabilities, prediction.members.sigmoid())
    assert_close(prediction.log_probabilities, twin.log_probabilities)
    for name in (
        "labels",
        "confidence",
        "entropy",
        "expected_entropy",
        "mutual_information",
        "variation_ratio",
    ):
        assert_close(getattr(prediction, name), getattr(twin, name))
    weighted = np.tensordot(prediction.weights.numpy(), prediction.members.numpy(), axes=1)
    assert_close(prediction.max_logit, torch.tensor(np.abs(weighted)))


def test_one_half_counts_as_yes():
    prediction = Bernoulli().prediction(torch.zeros(2, 3))
    assert_close(prediction.labels, torch.ones(3).long())
    assert_close(prediction.member_labels, torch.ones(2, 3).long())


@pytest.mark.parametrize("dtype", DTYPES)
def test_members_on_both_sides_of_zero_are_as_uncertain_as_their_mixture(dtype):
    prediction = two_sided(dtype=dtype)
    assert_close(prediction.mean, torch.zeros(1, dtype=dtype))
    assert_close(prediction.std, torch.tensor([math.sqrt(1.01)], dtype=dtype))
    assert_close(prediction.aleatoric, torch.tensor([0.01], dtype=dtype))
    assert_close(prediction.epistemic, torch.tensor([1.0], dtype=dtype))


def test_gaussian_moments_are_those_of_the_mixture():
    prediction = mixed(Gaussian(), 3, 5, 4)
    w, m, v = (x.numpy() for x in (prediction.weights, prediction.means, prediction.variances))
    assert_close(prediction.means, prediction.members[:, :, :2])
    assert_close(
        prediction.variances, torch.tensor(np.log1p(np.exp(prediction.members.numpy()[:, :, 2:])) + 1e-6)
    )
    mean = np.tensordot(w, m, axes=1)
    assert_close(prediction.mean, torch.tensor(mean))
    assert_close(prediction.variance, torch.tensor(np.tensordot(w, v + m**2, axes=1) - mean**2))


def test_a_variance_far_from_zero_does_not_cancel():
    prediction = Gaussian(precision=1e4).prediction(torch.tensor([[1e4 + 1.0], [1e4 - 1.0]]))
    assert_close(prediction.variance, torch.tensor([1.0001]))


@pytest.mark.parametrize("value", [Gaussian(precision=4.0), Gaussian()], ids=repr)
def test_log_prob_and_cdf_are_those_of_a_weighted_sum(value):
    prediction = mixed(value, 3, 5, 4)
    y = normal(*prediction.mean.shape, seed=7)
    members = stats.norm(prediction.means.numpy(), prediction.variances.sqrt().numpy())
    density = np.tensordot(prediction.weights.numpy(), members.pdf(y.numpy()), axes=1)
    mass = np.tensordot(prediction.weights.numpy(), members.cdf(y.numpy()), axes=1)
    assert_close(prediction.log_prob(y), torch.tensor(np.log(density)))
    assert_close(prediction.cdf(y), torch.tensor(mass))


def test_log_prob_is_finite_far_from_all_members():
    prediction = two_sided(dtype=torch.float32)
    expected = stats.norm.logpdf(50, 1, 0.1) - math.log(2)
    assert_close(prediction.log_prob(torch.tensor([50.0])), torch.tensor([expected], dtype=torch.float32))


def test_log_prob_aligns_its_target_and_never_broadcasts():
    prediction, y = mixed(Gaussian(), 3, 5, 2), normal(5, seed=7)
    assert_close(prediction.log_prob(y), prediction.log_prob(y[:, None]))
    with pytest.raises(InputError, match=r"shape \(5, 1\).*got shape \(5, 5\)"):
        prediction.log_prob(normal(5, 5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", [1e-3, 0.5, 0.9, 0.9999])
def test_the_interval_of_one_member_is_that_of_its_gaussian(dtype, level):
    low, high = Gaussian(precision=4.0).prediction(torch.tensor([[3.0]], dtype=dtype)).interval(level)
    expected = stats.norm.interval(level, 3.0, 0.5)
    assert_close((low, high), tuple(torch.tensor([end], dtype=dtype) for end in expected))


def test_float32_intervals_are_right_far_out():
    low, high = two_sided(dtype=torch.float32).interval(1 - 2e-7)
    end = stats.norm.isf(2e-7, 1, 0.1)  # the other member has no mass here
    assert_close((low, high), (torch.tensor([-end]).float(), torch.tensor([end]).float()), rtol=1e-6, atol=0)


def test_quantiles_invert_the_cdf():
    prediction = mixed(Gaussian(), 3, 5, 2, 2, 2)
    for p in (1e-6, 0.1, 0.5, 0.8, 1 - 1e-6):
        mass = torch.full_like(prediction.mean, p)
        assert_close(prediction.cdf(prediction.quantile(p)), mass, rtol=1e-9, atol=0)


@pytest.mark.parametrize("level", [0, 1, -0.5, 1.5, math.nan])
def test_a_level_outside_0_to_1_is_refused(level):
    with pytest.raises(SettingError, match="level must be above 0 and below 1, got "):
        two_sided().interval(level)
    with pytest.raises(SettingError, match="probability must be above 0 and below 1, got "):
        two_sided().quantile(level)


def test_samples_have_the_distribution_of_the_mixture():
    prediction = Gaussian(precision=100).prediction(torch.tensor([[1.0], [-1.0]]), torch.tensor([0.8, 0.2]))
    draws = prediction.sample(20_000, torch.Generator().manual_seed(0))
    assert draws.shape == (20_000, 1)
    result = stats.kstest(
        draws[:, 0].numpy(), lambda y: 0.8 * stats.norm.cdf(y, 1, 0.1) + 0.2 * stats.norm.cdf(y, -1, 0.1)
    )
    assert result.pvalue > 0.01


def test_one_draw_takes_all_targets_of_a_sample_from_one_member():
    means = torch.tensor([1.0, -1.0])[:, None, None].expand(2, 3, 4)
    draws = Gaussian(precision=1e6).prediction(means).sample(50, torch.Generator().manual_seed(0))
    assert draws.shape == (50, 3, 4)
    assert_close(draws.sign(), draws.sign()[:, :, :1].expand(50, 3, 4))
    assert draws.sign()[:, 0, 0].unique().numel() == 2


def test_the_same_seed_draws_the_same_samples():
    prediction = mixed(Gaussian(), 3, 5, 2)
    draws = [prediction.sample(4, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert_close(draws[0], draws[1], rtol=0, atol=0)
    with pytest.raises(SettingError, match="n must be at least 1, got 0"):
        prediction.sample(0)


def test_point_variance_is_between_members():
    prediction = mixed(Point(), 4, 5, 2)
    w, m = prediction.weights.numpy(), prediction.members.numpy()
    mean = np.tensordot(w, m, axes=1)
    assert_close(prediction.mean, torch.tensor(mean))
    assert_close(prediction.variance, torch.tensor(np.tensordot(w, (m - mean) ** 2, axes=1)))
    assert_close(prediction.std**2, prediction.epistemic)


@pytest.mark.parametrize("value", ALL, ids=repr)
@pytest.mark.parametrize(
    "index",
    [
        2,
        -1,
        slice(1, 4),
        slice(None, None, 2),
        torch.tensor([3, 0, 0]),
        torch.tensor([True, False] * 3),
        slice(0, 0),
    ],
    ids=str,
)
def test_selected_samples_are_predicted_as_before(value, index):
    prediction = mixed(value, 3, 6, 2)
    part, rows = prediction[index], torch.arange(6)[index].reshape(-1)
    assert len(part) == len(rows)
    assert_close(part.members, prediction.members[:, rows])
    for name, summary in part.numpy().items():
        assert_close(summary, prediction.numpy()[name][rows.numpy()])


def test_a_prediction_iterates_over_its_samples():
    prediction = mixed(Categorical(), 3, 4, 2)
    assert_close(torch.cat([one.entropy for one in prediction]), prediction.entropy)


@pytest.mark.parametrize("value", ALL, ids=repr)
def test_joined_parts_are_the_whole(value):
    prediction = mixed(value, 3, 6, 2)
    joined = Prediction.concatenate([prediction[:2], prediction[2:2], prediction[2:]])
    assert type(joined) is type(prediction)
    for name, summary in joined.numpy().items():
        assert_close(summary, prediction.numpy()[name])


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ([], "got none"),
        (
            [mixed(Point(), 3, 4, 2), mixed(Gaussian(precision=1.0), 3, 4, 2)],
            "GaussianPrediction .* and PointPred",
        ),
        ([mixed(Point(), 3, 4, 2), mixed(Point(), 3, 4, 2, seed=1)], "by the same weights, got "),
        ([mixed(Point(), 3, 4, 2), mixed(Point(), 2, 4, 2)], "by the same weights, got "),
        (
            [mixed(Point(), 3, 4, 2), mixed(Point(), 3, 4)],
            r"PointPrediction \[2\] .* and PointPrediction \[\]",
        ),
    ],
)
def test_predictions_of_other_kinds_or_weights_are_not_joined(others, message):
    with pytest.raises(InputError, match=message):
        Prediction.concatenate(others)


@pytest.mark.parametrize("value", ALL, ids=repr)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summarised_in_float32(value, dtype):
    prediction = value.prediction(normal(3, 5, 2).to(dtype))
    reference = value.prediction(prediction.members.float())
    for name, summary in prediction.numpy().items():
        assert summary.dtype in (np.float32, np.int64)
        assert_close(summary, reference.numpy()[name])


@pytest.mark.parametrize("value", ALL, ids=repr)
def test_summaries_under_autocast_are_those_of_float32(value):
    outputs = normal(3, 5, 2, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = value.prediction(outputs).numpy()
    assert_close(inside, value.prediction(outputs).numpy(), check_dtype=True)


@pytest.mark.parametrize("value", ALL, ids=repr)
def test_a_prediction_moves_to_a_dtype_and_a_device(value):
    prediction = mixed(value, 3, 5, 2)
    single = prediction.to(torch.float32).to("cpu")
    assert single.members.dtype == single.weights.dtype == torch.float32
    for name, summary in single.numpy().items():
        assert summary.dtype in (np.float32, np.int64)
        assert_close(summary, prediction.numpy()[name], check_dtype=False, rtol=1e-4, atol=1e-5)
    half = prediction.to(torch.float16)
    assert (half.members.dtype, half.weights.dtype) == (torch.float16, torch.float32)


def test_gradients_flow_through_summaries_and_numpy_drops_them():
    outputs = normal(3, 5, 2).requires_grad_()
    prediction = Categorical().prediction(outputs)
    prediction.entropy.sum().backward()
    assert outputs.grad.isfinite().all()
    assert (outputs.grad != 0).any()
    assert isinstance(prediction.numpy()["entropy"], np.ndarray)


def test_a_table_has_a_column_per_class():
    prediction = mixed(Categorical(), 3, 5, 4)
    frame = pd.DataFrame(prediction.table())
    assert list(frame) == [
        *("p0", "p1", "p2", "p3", "labels", "confidence", "max_logit"),
        *("entropy", "expected_entropy", "mutual_information", "variation_ratio"),
    ]
    assert_close(torch.tensor(frame[["p0", "p1", "p2", "p3"]].to_numpy()), prediction.probabilities)
    assert_close(torch.tensor(frame["entropy"].to_numpy()), prediction.entropy)


def test_a_table_numbers_several_targets_and_not_a_single_one():
    several, single = mixed(Gaussian(), 3, 5, 4), mixed(Gaussian(), 3, 5, 2)
    names = ["mean", "std", "variance", "epistemic", "aleatoric"]
    assert list(several.table()) == [f"{name}_{i}" for name in names for i in range(2)]
    assert list(single.table()) == names
    assert_close(torch.tensor(several.table()["mean_1"], dtype=torch.float64), several.mean[:, 1])
    assert list(mixed(Bernoulli(), 3, 5).table())[:2] == ["p", "labels"]


@pytest.mark.parametrize(
    ("value", "sizes"), [(Categorical(), (3, 2)), (Bernoulli(), (3, 2)), (Gaussian(), (2, 3))], ids=str
)
def test_a_dense_prediction_has_no_table(value, sizes):
    with pytest.raises(InputError, match=r"a table is flat, got .* has shape .*\. Use numpy\(\)"):
        mixed(value, 3, 5, *sizes).table()


@quick
@mixtures
@pytest.mark.parametrize("value", DISCRETE, ids=repr)
def test_discrete_summaries_stay_in_their_ranges(value, seed, members, size, scale):
    prediction = mixed(value, members, 4, size + 1, seed=seed, scale=scale, dtype=torch.float32)
    outcomes = prediction.log_probabilities.shape[1]
    tiny = 1e-5
    assert_close(prediction.log_probabilities.exp().sum(1), torch.ones_like(prediction.entropy))
    assert (prediction.mutual_information >= 0).all()
    assert (prediction.entropy >= 0).all()
    assert (prediction.entropy <= math.log(outcomes) + tiny).all()
    assert (prediction.expected_entropy <= prediction.entropy + tiny).all()
    assert (prediction.confidence >= 1 / outcomes - tiny).all()
    assert (prediction.confidence <= 1).all()
    assert (prediction.variation_ratio >= 0).all()
    assert (prediction.variation_ratio <= 1 - 1 / outcomes + tiny).all()


@quick
@mixtures
@pytest.mark.parametrize("value", ALL, ids=repr)
def test_the_order_of_members_does_not_matter(value, seed, members, size, scale):
    prediction = mixed(value, members, 4, 2 * size, seed=seed, scale=scale)
    order = torch.randperm(members, generator=torch.Generator().manual_seed(seed))
    shuffled = value.prediction(prediction.members[order], prediction.weights[order])
    assert_close(shuffled.numpy(), prediction.numpy(), rtol=1e-9, atol=1e-9)


@quick
@mixtures
@pytest.mark.parametrize("value", ALL, ids=repr)
def test_a_member_without_weight_does_not_matter(value, seed, members, size, scale):
    prediction = mixed(value, members, 4, 2 * size, seed=seed, scale=scale)
    stranger = normal(1, 4, 2 * size, seed=seed + 2)
    weights = torch.cat((prediction.weights, torch.zeros(1, dtype=torch.float64)))
    joined = value.prediction(torch.cat((prediction.members, stranger)), weights)
    assert_close(joined.numpy(), prediction.numpy(), rtol=1e-9, atol=1e-9)


@quick
@mixtures
def test_total_variance_is_aleatoric_and_epistemic(seed, members, size, scale):
    prediction = mixed(Gaussian(), members, 4, 2 * size, seed=seed, scale=scale)
    square = np.tensordot(prediction.weights, prediction.variances + prediction.means**2, axes=1)
    assert_close(prediction.variance, prediction.aleatoric + prediction.epistemic)
    assert_close(prediction.variance, torch.tensor(square) - prediction.mean**2, rtol=1e-6, atol=1e-9)


@quick
@mixtures
@pytest.mark.parametrize("level", [0.1, 0.68, 0.999])
def test_an_interval_holds_its_level_with_equal_tails(level, seed, members, size, scale):
    prediction = mixed(Gaussian(), members, 4, 2 * size, seed=seed, scale=scale)
    low, high = prediction.interval(level)
    tail = torch.full_like(low, (1 - level) / 2)
    assert_close(prediction.cdf(low), tail, rtol=1e-6, atol=1e-9)
    assert_close(1 - prediction.cdf(high), tail, rtol=1e-6, atol=1e-9)


def test_other_weights_leave_members_out_and_are_normalised():
    outputs = torch.randn(3, 5, 4, dtype=torch.float64, generator=seeded(0))
    weights = torch.tensor([2.0, 0.0, 6.0], dtype=torch.float64)
    nested = Categorical().prediction(outputs).weighted(weights)
    expected = Categorical().prediction(outputs[[0, 2]], torch.tensor([0.25, 0.75]).double())
    assert_close(nested.probabilities, expected.probabilities)
    assert_close(nested.members, expected.members)
    for wrong in (0 * weights, weights[:2], [1.0, 1.0, 1.0]):
        with pytest.raises(InputError, match="weights must be a tensor of 3 numbers of at least 0, not all"):
            Categorical().prediction(outputs).weighted(wrong)


def test_a_prediction_is_printed_in_a_line():
    assert repr(mixed(Categorical(), 3, 5, 4)) == (
        "CategoricalPrediction(5 samples by 3 members, outputs of shape (4,))"
    )
    assert repr(mixed(Bernoulli(), 2, 7)) == "BernoulliPrediction(7 samples by 2 members)"


def calibration(**parts):
    reference = torch.zeros(1, dtype=torch.float64)
    return Calibration(**{"level": 0.8, "false_alarm": 0.1, "reference": reference, **parts})


@pytest.mark.parametrize("likelihood", ALL, ids=str)
def test_uncalibrated_predictions_have_no_sets_intervals_or_flags(likelihood):
    prediction = mixed(likelihood, 2, 5, 4)
    calls = [lambda: prediction.flagged, lambda: prediction.ood_score]
    if likelihood in DISCRETE:
        calls.append(lambda: prediction.sets)
    else:
        calls.append(lambda: prediction.interval())
    for call in calls:
        with pytest.raises(InputError, match=r"must be calibrated.*ensemble.calibrate"):
            call()
    assert prediction.raw is prediction


@pytest.mark.parametrize("likelihood", DISCRETE, ids=str)
def test_calibrated_probabilities_are_powers_and_raw_ones_stay(likelihood):
    raw = mixed(likelihood, 3, 6, 4)
    found = raw.calibrated(calibration(temperature=2.0, quantile=0.6))
    powers = raw.log_probabilities.exp().sqrt()
    expected = powers / powers.sum(1, keepdim=True)
    assert_close(found.log_probabilities.exp(), expected)
    assert_close(found.sets, 1 - expected <= 0.6)
    assert_close(found.entropy, -(expected * expected.log()).sum(1))
    assert_close(found.labels, raw.labels)
    for name in ("mutual_information", "expected_entropy", "variation_ratio", "max_logit"):
        assert_close(getattr(found, name), getattr(raw, name))
    for name in raw.summaries:
        assert_close(getattr(found.raw, name), getattr(raw, name))
    assert_close(found.calibrated(None).probabilities, raw.probabilities)


def test_calibrated_mixture_is_stretched_around_its_mean():
    raw = mixed(Gaussian(), 3, 6, 4)
    found = raw.calibrated(calibration(variance_scale=4.0, quantile=0.5))
    assert_close(found.mean, raw.mean)
    assert_close(found.variance, 4 * raw.variance)
    for probability in (0.1, 0.6):
        expected = raw.mean + 2 * (raw.quantile(probability) - raw.mean)
        assert_close(found.quantile(probability), expected)
    low, high = found.interval(0.8)
    assert_close(found.interval(), (low - 0.5 * found.std, high + 0.5 * found.std))
    assert_close(found.raw.means, raw.means)
    assert_close(found.raw.variances, raw.variances)
    target = raw.mean + 0.3
    # A density stretched by 2 is half as high, at twice the distance from the mean.
    assert_close(found.log_prob(raw.mean + 0.6), raw.log_prob(target) - math.log(2))


def test_calibration_follows_numbers_into_the_units_of_the_data():
    mean, std = torch.tensor([5.0, -3.0]), torch.tensor([10.0, 0.1])
    for likelihood, score in ((Gaussian(precision=2.0), "variance"), (Point(), "epistemic_variance")):
        raw = mixed(likelihood, 3, 6, 2)
        threshold = raw.score(score).mean().item()
        fitted = calibration(variance_scale=2.0, quantile=0.5, score=score, threshold=threshold)
        found = raw.calibrated(fitted)
        moved = found.rescaled(mean, std)
        assert_close(moved.ood_score, found.ood_score)
        assert_close(moved.flagged, found.flagged)
        assert 0 < int(found.flagged.sum()) < 6
        for there, here in zip(moved.interval(), found.interval(), strict=True):
            assert_close(there, here * std.double() + mean.double())


def test_point_intervals_have_the_calibrated_level_alone():
    found = mixed(Point(), 3, 6, 2).calibrated(calibration(quantile=0.5))
    assert_close(found.interval(0.8), (found.mean - 0.5, found.mean + 0.5))
    with pytest.raises(SettingError, match=r"level must be None or 0.8, the calibrated level of Point"):
        found.interval(0.95)


def test_flags_are_scores_above_the_threshold():
    raw = mixed(Categorical(), 3, 6, 4)
    threshold = raw.entropy.sort().values[3].item()
    found = raw.calibrated(calibration(temperature=3.0, score="entropy", threshold=threshold))
    assert_close(found.ood_score, raw.entropy)
    assert_close(found.flagged, raw.entropy > threshold)
    assert int(found.flagged.sum()) == 2
    dense = mixed(Categorical(), 3, 6, 4, 5)
    assert_close(dense.score("entropy"), dense.entropy.mean(1))
    with pytest.raises(InputError, match="mahalanobis must be fitted"):
        raw.score("mahalanobis")


def test_parts_of_a_prediction_keep_its_calibration_and_other_weights_drop_it():
    fitted = calibration(temperature=2.0, quantile=0.5, score="entropy", threshold=1.0)
    whole = mixed(Categorical(), 3, 6, 4).calibrated(fitted)
    parts = [whole[:2], whole[2:]]
    assert_close(Prediction.concatenate(parts).probabilities, whole.probabilities)
    assert_close(whole.to(torch.float32).sets, whole.sets)
    assert whole.weighted(whole.weights).calibration is None
    with pytest.raises(InputError, match="must have one calibration"):
        Prediction.concatenate([whole[:2], whole.raw[2:]])


def test_tables_of_calibrated_predictions_have_sets_intervals_and_flags():
    flags = {"score": "entropy", "threshold": 0.5, "quantile": 0.6}
    logits = torch.tensor([[[5.0, 0.0, 0.0], [1.0, 1.0, -9.0]]])
    table = Categorical().prediction(logits).calibrated(calibration(**flags)).table()
    assert table["set"] == ["0", "0 1"]
    assert table["flagged"] == [False, True]
    labels = (
        Bernoulli().prediction(torch.tensor([[[5.0, 0.0], [-5.0, 3.0]]])).calibrated(calibration(**flags))
    )
    assert labels.table()["set_0"] == ["1", "0"]
    assert labels.table()["set_1"] == ["0 1", "1"]
    numbers = mixed(Point(), 2, 3, 2).calibrated(calibration(quantile=0.5))
    assert numbers.table()["low_1"] == (numbers.mean[:, 1] - 0.5).tolist()
    assert "high" in mixed(Point(), 2, 3).calibrated(calibration(quantile=0.5)).table()
