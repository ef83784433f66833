"""Out-of-distribution detection against scikit-learn, ties and both conventions of FPR95 included."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from torch.testing import assert_close
from torchmetrics.functional.classification import binary_specificity_at_sensitivity

from pluribus.errors import InputError, SettingError
from pluribus.likelihood import Categorical
from pluribus.metrics import METRICS, aupr, auroc, fpr95, ood_scores
from tests.metrics.examples import answers, classes, normal, numbers, points

DISCRETE = ["max_probability", "max_logit", "entropy", "mutual_information", "variation_ratio"]
scores = st.lists(st.integers(-3, 3), min_size=1, max_size=60)


def labelled(in_scores, out_scores):
    return np.repeat([0, 1], [len(in_scores), len(out_scores)]), np.concatenate((in_scores, out_scores))


def sklearn_fpr(target, values, recall=0.95):
    false, true, _ = sklearn.roc_curve(target, values, drop_intermediate=False)
    return float(false[true >= recall].min())


def check(in_scores, out_scores):
    target, values = labelled(in_scores, out_scores)
    inside, outside = torch.tensor(in_scores), torch.tensor(out_scores)
    assert_close(auroc(inside, outside), float(sklearn.roc_auc_score(target, values)))
    assert_close(aupr(inside, outside), float(sklearn.average_precision_score(target, values)))
    assert_close(fpr95(inside, outside), sklearn_fpr(target, values))
    assert_close(fpr95(inside, outside, positive="in"), sklearn_fpr(1 - target, -values))


@settings(deadline=None, max_examples=150)
@given(in_scores=scores, out_scores=scores)
def test_measures_of_tied_scores_are_those_of_scikit_learn(in_scores, out_scores):
    check([s / 2 for s in in_scores], [s / 2 for s in out_scores])


@pytest.mark.parametrize("sizes", [(1, 1), (20, 20), (100, 40), (37, 1000)])
def test_measures_of_distinct_scores_are_those_of_scikit_learn(sizes):
    check(normal(sizes[0]).tolist(), (normal(sizes[1], seed=1) + 1).tolist())


def test_fpr_is_that_of_torchmetrics():
    inside, outside = normal(300).sigmoid(), (normal(200, seed=1) + 1).sigmoid()
    target, values = labelled(inside, outside)
    specificity, _ = binary_specificity_at_sensitivity(
        torch.tensor(values), torch.tensor(target), min_sensitivity=0.95
    )
    assert_close(fpr95(inside, outside), 1 - specificity.item(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("measure", "chance"), [(auroc, 0.5), (aupr, 0.2), (fpr95, 1.0)])
def test_equal_scores_tell_nothing(measure, chance):
    assert_close(measure(torch.zeros(80), torch.zeros(20)), chance)


@pytest.mark.parametrize(("measure", "best"), [(auroc, 1.0), (aupr, 1.0), (fpr95, 0.0)])
def test_scores_apart_tell_all(measure, best):
    assert measure(torch.tensor([-math.inf, 0.0]), torch.tensor([1.0, math.inf, 2.0])) == best


@pytest.mark.parametrize("measure", [fpr95, partial(fpr95, positive="in")])
def test_fpr_of_scores_in_the_wrong_order_is_one(measure):
    assert measure(torch.tensor([2.0, 3.0]), torch.tensor([0.0, 1.0])) == 1.0


def test_both_conventions_of_fpr_by_hand():
    inside, outside = torch.arange(20.0), torch.tensor([5.0, *[17.5] * 9])
    assert fpr95(inside, outside) == 15 / 20  # all ten must be found, down to 5
    assert fpr95(inside, outside, positive="in") == 10 / 10  # nineteen must be kept, up to 18
    assert fpr95(inside, outside + 1, positive="in") == 1 / 10  # 18.5 is not kept


def test_exactly_95_percent_is_enough():
    inside, outside = torch.tensor([0.5]), torch.tensor([0.0] + [1.0] * 19)
    assert fpr95(inside, outside) == 0.0
    assert fpr95(inside, outside[:-1]) == 1.0


def test_exchanging_the_sets_turns_the_area_around():
    inside, outside = normal(50).round(), normal(30, seed=1).round()
    assert_close(auroc(inside, outside), 1 - auroc(outside, inside))


@pytest.mark.parametrize(
    ("made", "criteria"),
    [
        (classes(20), DISCRETE),
        (answers(20, 3), DISCRETE),
        (numbers(20, 2), ["variance", "epistemic_variance"]),
        (points(20), ["epistemic_variance"]),
    ],
)
def test_each_kind_has_its_criteria(made, criteria):
    found = ood_scores(made[0])
    assert list(found) == criteria
    assert all(values.shape == (made[1].numel(),) for values in found.values())


def test_criteria_are_the_summaries_turned_so_that_higher_is_stranger():
    prediction, _ = classes(20, 4, 3)
    found = ood_scores(prediction)
    assert_close(found["max_probability"], -prediction.confidence.flatten())
    assert_close(found["max_logit"], -prediction.max_logit.flatten())
    for name in DISCRETE[2:]:
        assert_close(found[name], getattr(prediction, name).flatten())
    gaussian, _ = numbers(20, 2)
    assert_close(ood_scores(gaussian)["variance"], gaussian.variance.flatten())
    assert_close(ood_scores(gaussian)["epistemic_variance"], gaussian.epistemic.flatten())


def test_members_that_contradict_one_another_are_strange_by_every_criterion():
    sure = torch.tensor([9.0, 0.0, 0.0]).expand(3, 50, 3)
    torn = 9 * torch.eye(3).unsqueeze(1).expand(3, 40, 3)
    for criterion in DISCRETE:
        row = METRICS[f"auroc_{criterion}"]
        assert row(Categorical().prediction(sure), Categorical().prediction(torn)) == 1.0


@pytest.mark.parametrize("measure", [auroc, aupr, fpr95])
def test_each_row_is_its_measure_of_its_criterion(measure):
    inside, outside = classes(50, 4, 2)[0], classes(30, 4, 2, seed=9, scale=1.0)[0]
    for criterion, own in ood_scores(inside).items():
        value = METRICS[f"{measure.__name__}_{criterion}"](inside, outside)
        assert value == measure(own, ood_scores(outside)[criterion])


@pytest.mark.parametrize("measure", [auroc, aupr, fpr95])
def test_no_scores_and_nan_are_refused(measure):
    with pytest.raises(InputError, match="in_scores must be numbers, at least 1, got 0"):
        measure(torch.zeros(0), torch.zeros(3))
    with pytest.raises(InputError, match="out_scores must be numbers, at least 1, got 3, of which 1 are NaN"):
        measure(torch.zeros(3), torch.tensor([0, math.nan, 1]))


def test_an_unknown_positive_class_is_refused():
    with pytest.raises(SettingError, match="positive must be one of 'out', 'in', got 'ood'"):
        fpr95(torch.zeros(1), torch.zeros(1), positive="ood")
