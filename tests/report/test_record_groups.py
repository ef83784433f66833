"""One record in groups: every number once, with its interval and its meaning."""

from pluribus.comparison.decisions import with_costs
from pluribus.metrics.costs import Costs
from pluribus.report.record_groups import grouped
from tests.report.records import classes, numbers

POSTHOC = {"temperature": 1.5, "threshold": 0.3, "threshold_sensitivity": 0.9, "new_number": 3.0}


def run():
    made = classes(posthoc=POSTHOC, intervals={"accuracy": (0.5, 0.75)})
    made.ood["noise"]["auroc_chosen"] = 0.9
    return with_costs(made, Costs(wrong=2, defer=0.3))


def test_every_number_stands_once_in_its_group():
    found = grouped(run())
    names = {title: [line.name for line in lines] for title, lines in found.items()}
    assert {"accuracy", "auroc", "nll"} <= set(names["Quality"])
    assert "ece" in names["Calibration: can its confidence be trusted?"]
    assert names["At the threshold that was best on validation data"] == [
        "threshold",
        "threshold_sensitivity",
    ]
    assert names["After corrections fitted on validation data"] == ["temperature", "new_number"]
    assert names["Costs of decisions"] == ["expected_cost", "cost_of_one_answer", "deferred", "wrong"]
    assert "auroc_entropy" in names["Out of distribution: noise"]
    assert names["Out of distribution: noise"][0] == "auroc_chosen"
    every = [name for title, own in names.items() for name in own if not title.startswith("Shifted")]
    assert len(every) == len(set(every))
    assert set(run().metrics) <= set(every)


def test_lines_have_intervals_and_meanings():
    (accuracy,) = (line for line in grouped(run())["Quality"] if line.name == "accuracy")
    assert accuracy.interval == (0.5, 0.75)
    assert accuracy.meaning.endswith(".")


def test_meanings_name_the_two_classes():
    made = classes(posthoc=POSTHOC, class_names=["benign", "malignant"], decisions={"missed": 0.1})
    meanings = {line.name: line.meaning for own in grouped(made).values() for line in own}
    assert meanings["threshold"] == "Probability of class malignant from which on it is answered."
    assert meanings["threshold_sensitivity"] == "Share of the samples of class malignant that are found."
    assert meanings["missed"] == "Share of samples of class malignant that are answered benign."
    unnamed = {line.name: line.meaning for own in grouped(run()).values() for line in own}
    assert unnamed["threshold"] == "Probability of class 1 from which on it is answered."


def test_groups_without_numbers_are_left_out():
    assert set(grouped(numbers())) == {"Quality", "Diversity of the members", "Cost"}
