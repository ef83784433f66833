"""Costs of decisions in words, with their shares and the best that needs no prediction."""

from pluribus.comparison.decisions import with_costs
from pluribus.metrics.costs import Costs
from pluribus.report.decision_costs import costs_option, decision_costs
from pluribus.report.recommendation import recommend
from tests.report.records import classes, only_group


def group(costs):
    runs = [classes(), classes("deep_ensembles", skill=4.0)]
    return only_group(*(with_costs(run, costs) for run in runs))


def test_sentence_has_costs_and_shares():
    found = group(Costs(wrong=2, defer=0.3))
    single = found.entries[0]
    (sentence,) = decision_costs(single)
    decisions = single.runs[0].decisions
    assert sentence.startswith("With these costs (wrong 2, defer 0.3) a decision costs ")
    assert f"{100 * decisions['deferred']:.1f} % deferred" in sentence
    assert f"would cost {decisions['cost_of_one_answer']:.3g}." in sentence


def test_costs_given_are_judged_by():
    found = recommend(group(Costs(wrong=2, defer=0.3)))
    assert found.judge.name == "expected_cost"
    assert "expected cost" in found.sentences[0]
    assert any(one.startswith("With these costs") for one in found.sentences)


def test_nothing_is_said_without_costs():
    assert list(decision_costs(group(None).entries[0])) == []
    assert recommend(group(None)).judge.name == "nll"


def test_the_option_of_the_command_line_repeats_the_costs():
    assert costs_option(group(Costs(wrong=2, defer=0.3)).entries[0]) == ' --costs "wrong=2,defer=0.3"'
    assert costs_option(group(None).entries[0]) == ""
