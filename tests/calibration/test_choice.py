"""The choice of a score: AUROCs of scikit-learn, and the family that the data calls for."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from pluribus import Bernoulli, Categorical, Gaussian, Point
from pluribus.calibration.choice import fit_score, groups_of, rate_scores, usual_score


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def groups(samples=200, sharp=8.0, seed=0):
    """Logits of two members in tight groups, one for each of three classes."""
    target = torch.arange(samples) % 3
    centres = sharp * torch.eye(3, dtype=torch.float64)
    return centres[target] + 0.3 * normal(2, samples, 3, seed=seed), target


def test_the_rate_of_a_score_is_its_mean_auroc():
    outputs, target = groups()
    clean = Categorical().prediction(outputs)
    strange = {name: Categorical().prediction(normal(2, 200, 3, seed=seed)) for seed, name in enumerate("ab")}
    rates = rate_scores(clean, target, strange)
    wrong = [0] * 200 + [1] * 200
    expected = 0
    for one in strange.values():
        expected += roc_auc_score(wrong, [*clean.entropy.tolist(), *one.entropy.tolist()]) / 2
    assert rates["entropy"] == pytest.approx(expected)
    assert set(rates) >= {"max_probability", "max_logit", "mutual_information", "mahalanobis"}


def test_distance_wins_where_strangers_are_sure_but_elsewhere():
    outputs, target = groups()
    clean = Categorical().prediction(outputs)
    # Far beyond the groups, in the direction of a class: surer than any sample that was seen.
    strange = {"far": Categorical().prediction(3 * outputs)}
    rates = rate_scores(clean, target, strange)
    assert rates["mahalanobis"] > 0.99 > 0.5 > rates["entropy"]


def test_a_distance_is_not_judged_on_the_samples_it_was_fitted_to():
    """Samples drawn alike are not told apart, though there are as many numbers as samples."""
    clean, other = (Categorical().prediction(normal(4, 40, 10, seed=seed)) for seed in (0, 1))
    rates = rate_scores(clean, torch.arange(40) % 10, {"alike": other})
    assert 0.35 < rates["mahalanobis"] < 0.65


@pytest.mark.parametrize(
    ("likelihood", "shape", "score"),
    [
        (Categorical(), (2, 6, 3), "entropy"),
        (Bernoulli(), (2, 6), "entropy"),
        (Gaussian(), (2, 6, 2), "variance"),
        (Point(), (2, 6, 1), "epistemic_variance"),
    ],
)
def test_the_usual_score_and_the_distance_suit_every_prediction(likelihood, shape, score):
    prediction = likelihood.prediction(normal(*shape))
    assert usual_score(prediction) == score
    classes = groups_of(prediction, torch.arange(6) % 2)
    assert classes.tolist() == ([0, 1] * 3 if score == "entropy" else [0] * 6)
    fitted = fit_score("mahalanobis", prediction, classes)
    assert prediction.score("mahalanobis", fitted).shape == (6,)
    assert fit_score(score, prediction, classes).means is None


def test_samples_of_several_labels_have_no_single_class():
    prediction = Bernoulli().prediction(normal(2, 6, 3))
    assert groups_of(prediction, torch.ones(6, 3)).tolist() == [0] * 6
