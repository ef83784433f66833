"""Sentences: why a configuration is recommended, and at what cost."""

from pluribus.report.budget import parse_budget
from pluribus.report.columns import columns_of
from pluribus.report.rivals import Rival, make_rival
from pluribus.report.sentences import against_single, as_good, best_of, beyond_budget, nothing_fits, price
from tests.report.records import classes, only_group

GROUP = only_group(
    *(
        classes(kind, seed, skill)
        for kind, skill in (("single", 1), ("deep_ensembles", 3))
        for seed in range(2)
    )
)
SINGLE, DEEP = GROUP.entries
COLUMNS = {column.name: column for column in columns_of(GROUP)}
LIMITS = parse_budget("multiply_adds<=2x")


def test_nothing_is_recommended_for_a_reason():
    assert nothing_fits(only_group(classes()), LIMITS, 1) == "Nothing fits the budget, multiply-adds ≤ 2 ×."
    assert nothing_fits(GROUP, LIMITS, 1).startswith("No configuration within the budget has a quality")


def test_configurations_beyond_the_budget_are_listed_with_reasons():
    assert list(beyond_budget([(DEEP, "time 4 ×")])) == ["Beyond the budget: deep_ensembles (time 4 ×)."]
    assert list(beyond_budget([])) == []


def test_best_quality_is_named_with_its_direction():
    assert best_of(DEEP, COLUMNS["nll"], 3, ()).startswith("Of 3 configurations, it has the lowest NLL: ")
    assert "the highest Accuracy" in best_of(DEEP, COLUMNS["accuracy"], 3, LIMITS)
    assert best_of(DEEP, COLUMNS["nll"], 1, ()).startswith("It is the only configuration that was run: NLL")


def test_single_network_is_the_yardstick():
    first, second = against_single(DEEP, COLUMNS["nll"], GROUP)
    assert "its NLL is" in first
    assert "more than chance makes" in first
    assert second.startswith("Beyond chance against the single network: Accuracy is better")
    assert list(against_single(SINGLE, COLUMNS["nll"], GROUP)) == []


def test_rivals_that_may_be_as_good_are_named():
    judge = COLUMNS["ood_auroc"]
    (unknown,) = as_good([make_rival(SINGLE, DEEP, judge, GROUP)], judge)
    assert unknown.startswith("Whether it beats single is not known: chance is not tested for OOD AUROC")
    assert "compare standard errors" in unknown


def test_rivals_that_are_worse_are_not_named():
    judge = COLUMNS["nll"]
    worse: Rival = make_rival(SINGLE, DEEP, judge, GROUP)
    assert list(as_good([worse], judge)) == []


def test_price_is_that_of_several_single_networks():
    (sentence,) = price(DEEP, GROUP)
    costs = "4.00 × the parameters, 4.00 × the multiply-adds and 4.00 × the time"
    assert sentence == f"It costs {costs} of the single network."
    assert list(price(SINGLE, GROUP)) == []
