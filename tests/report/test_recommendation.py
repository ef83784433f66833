"""Recommendations: the best within the budget, and honest words about it."""

import math
import re
from dataclasses import replace

from pytest import raises

from pluribus.errors import SettingError
from pluribus.report.budget import parse_budget
from pluribus.report.recommendation import recommend
from tests.report.records import classes, failed, numbers, only_group

SEEDS = range(3)


def three():
    """The single network is worst, the deep ensemble best and dearest, dropout between them and cheap."""
    return only_group(
        *(classes(seed=seed, skill=1.0) for seed in SEEDS),
        *(classes("deep_ensembles", seed, 4.0) for seed in SEEDS),
        *(classes("mc_dropout", seed, 2.5) for seed in SEEDS),
    )


def said(found):
    return " ".join(found.sentences)


def test_the_best_quality_is_recommended_with_its_numbers():
    found = recommend(three())
    assert found.choice.label == "deep_ensembles"
    assert found.title == "Take deep_ensembles"
    assert [rival.entry.label for rival in found.rivals] == ["mc_dropout", "single"]
    assert not any(rival.gap.within_noise for rival in found.rivals)
    quality = found.judge.cell(found.choice).show(3)
    assert f"lowest NLL: {quality} (mean over 3 seeds)" in said(found)
    assert "more than chance makes" in said(found)
    assert "It costs 4.00 × the parameters, 4.00 × the multiply-adds and 4.00 × the time" in said(found)
    assert "% sure on average and right in" in said(found)


def test_a_budget_leaves_out_what_is_too_dear():
    found = recommend(three(), parse_budget("multiply_adds<=1.5x,parameters<=2x"))
    assert found.choice.label == "mc_dropout"
    assert "within the budget, multiply-adds ≤ 1.5 × and parameters ≤ 2 ×" in said(found)
    assert "Beyond the budget: deep_ensembles (multiply-adds 4 ×, parameters 4 ×)" in said(found)


def test_a_budget_that_nothing_keeps_says_so():
    found = recommend(three(), parse_budget("parameters<=0.5x"))
    assert found.choice is None
    assert found.title == "Nothing to recommend"
    assert "Nothing fits the budget, parameters ≤ 0.5 ×." in said(found)
    assert "single (parameters 1 ×)" in said(found)


def test_what_is_not_known_to_keep_the_budget_is_beyond_it():
    group = only_group(classes(), classes("mc_dropout", skill=3.0, cost={}))
    found = recommend(group, parse_budget("parameters<=2x"))
    assert found.choice.label == "single"
    assert "mc_dropout (parameters not known)" in said(found)


def test_a_difference_within_noise_is_called_chance_and_the_cheaper_one_named():
    alike = [classes("deep_ensembles", seed, 2.001) for seed in SEEDS]
    for run, other in zip(alike, [classes(seed=seed) for seed in SEEDS], strict=True):
        run.outcomes.columns.update(other.outcomes.columns)
        run.metrics["nll"] = other.metrics["nll"] - 1e-6
    found = recommend(only_group(*(classes(seed=seed) for seed in SEEDS), *alike))
    assert found.title == "Take deep_ensembles; single may be as good"
    assert "which may be chance" in said(found)
    assert "take single (1.00 × the parameters and 1.00 × the multiply-adds)" in said(found)


def test_the_user_may_judge_by_another_metric():
    group = only_group(classes(skill=1.0), classes("mc_dropout", skill=4.0))
    group.entries[0].runs[0].metrics["ece"] = 0.0
    assert recommend(group, metric="ece").choice.label == "single"
    assert recommend(group).choice.label == "mc_dropout"
    with raises(SettingError, match=r"must be one of accuracy, nll.*got 'elo'"):
        recommend(group, metric="elo")


def test_missing_numbers_and_outcomes_are_said():
    group = only_group(classes(), replace(classes("mc_dropout", skill=3.0), outcomes=None))
    assert "Whether it beats single is not known" in said(recommend(group))
    without = classes("mc_dropout", skill=9.0)
    without.metrics["nll"] = math.nan
    assert recommend(only_group(classes(), without)).choice.label == "single"
    assert recommend(only_group(failed())).sentences == ("No run has succeeded.",)
    assert recommend(only_group(classes(metrics={}))).choice is None


def test_one_configuration_and_one_seed_are_said():
    assert "It is the only configuration that was run: NLL" in said(recommend(only_group(classes())))
    assert "(one seed)" in said(recommend(only_group(classes())))


def test_regression_is_judged_by_density_and_trusted_by_intervals():
    found = recommend(only_group(numbers(noise=2.0), numbers("mc_dropout", noise=0.5)))
    assert (found.judge.name, found.choice.label) == ("gaussian_nll", "mc_dropout")
    assert "Its 95 % intervals hold 9" in said(found)


def test_shared_seeds_may_favour_another():
    """The single network is best over its seeds, but worse than dropout on the only one that both have."""
    group = only_group(
        *(classes(seed=s, skill=k) for s, k in enumerate((1, 5, 5))), classes("mc_dropout", 0, 2.0)
    )
    found = recommend(group)
    assert found.title == "Take single; mc_dropout may be as good"
    assert [rival.verdict for rival in found.rivals] == ["better on shared seeds"]
    assert "On the seeds that both have, mc_dropout did better" in said(found)


def test_verdicts_follow_the_direction_of_the_metric():
    for metric in ("nll", "accuracy"):
        found = recommend(three(), metric=metric)
        assert found.choice.label == "deep_ensembles"
        assert found.rivals[-1].verdict == "worse"
    assert "Accuracy is better" in said(recommend(three()))
    assert "NLL is better" in said(recommend(three(), metric="accuracy"))


def test_what_has_no_number_is_no_rival():
    without = classes("mimo")
    without.metrics["nll"] = math.nan
    found = recommend(only_group(classes(), classes("mc_dropout", skill=3.0), without))
    assert [rival.entry.label for rival in found.rivals] == ["single"]
    assert "Of 2 configurations" in said(found)


def test_a_metric_without_a_test_of_chance_says_so():
    found = recommend(three(), metric="ood_auroc")
    assert "is not known: chance is not tested for OOD AUROC, so compare standard errors." in said(found)


def test_standard_errors_are_not_pointed_to_where_there_are_none():
    group = only_group(classes(skill=1.0), classes("mc_dropout", skill=4.0))
    found = recommend(group, metric="ood_auroc")
    assert "chance is not tested for OOD AUROC, so run several seeds." in said(found)
    assert "standard errors" not in said(found)


def test_small_numbers_are_told_with_their_figures():
    runs = [
        numbers(kind, seed, noise) for kind, noise in (("single", 2e-4), ("mimo", 1e-4)) for seed in SEEDS
    ]
    told = said(recommend(only_group(*runs), metric="rmse"))
    assert re.search(r"RMSE is 0\.0000[1-9]\d+ lower \(95 % interval 0\.0000[1-9]", told)


def test_confidence_above_and_below_the_share_of_right_answers_is_told():
    for confidence, words in ((1.0, "too sure by"), (0.1, "too careful by")):
        run = classes(skill=2.0)
        run.outcomes.columns["confidence"][:] = confidence
        assert words in said(recommend(only_group(run)))


def test_what_costs_more_in_one_way_is_not_called_cheaper():
    dear = {"parameters_ratio": 4.0, "multiply_adds_ratio": 1.0}
    mixed = {"parameters_ratio": 1.0, "multiply_adds_ratio": 4.0}
    other = classes("mimo", cost=mixed, outcomes=classes().outcomes)
    found = recommend(only_group(classes("mc_dropout", cost=dear, outcomes=classes().outcomes), other))
    assert [rival.cheaper for rival in found.rivals] == [""]
    assert "If cost matters" not in said(found)


def test_a_cost_at_the_limit_is_within_the_budget():
    assert recommend(only_group(classes()), parse_budget("parameters<=1x")).choice is not None
