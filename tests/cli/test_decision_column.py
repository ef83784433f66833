"""Decisions: what to answer for each input, and which inputs to defer, by the costs of mistakes."""

from collections import Counter

import pytest
import torch

from pluribus.cli.decision_column import costs_in_words, counts_in_words, decisions, names_of_outcomes
from pluribus.errors import SettingError
from pluribus.likelihood import Bernoulli, Categorical, Gaussian
from pluribus.metrics.costs import Costs

CLINIC = Costs(miss=10, alarm=1, defer=0.5)
NAMES = ["benign", "malignant"]


def logits(*rows):
    return torch.tensor(rows).log()[None]


def test_a_likely_benign_case_is_deferred_where_a_miss_is_dear():
    found = Categorical().prediction(logits((0.99, 0.01), (0.9, 0.1), (0.2, 0.8)))
    assert decisions(found, CLINIC, NAMES) == ["benign", "defer", "malignant"]
    assert decisions(found, Costs(miss=10, alarm=1), NAMES) == ["benign", "malignant", "malignant"]


def test_a_single_logit_has_decisions_too():
    found = Bernoulli().prediction(torch.tensor([[-5.0, -2.2, 1.4]]))
    assert decisions(found, CLINIC, ["0", "1"]) == ["0", "defer", "1"]


def test_more_classes_defer_the_unsure():
    found = Categorical().prediction(logits((0.8, 0.1, 0.1), (0.4, 0.3, 0.3)))
    assert decisions(found, Costs(wrong=1, defer=0.5), ["a", "b", "c"]) == ["a", "defer"]


@pytest.mark.parametrize(
    "prediction",
    [
        Gaussian().prediction(torch.zeros(1, 3, 2)),
        Categorical().prediction(torch.zeros(1, 3, 2, 4, 4)),
        Bernoulli().prediction(torch.zeros(1, 3, 5)),
    ],
    ids=["number", "every pixel", "several labels"],
)
def test_only_one_answer_for_each_input_is_decided(prediction):
    with pytest.raises(SettingError, match="one answer for each input"):
        decisions(prediction, CLINIC, NAMES)


def test_outcomes_have_names_or_numbers():
    assert names_of_outcomes(Categorical(), 2, ("no", "yes")) == ["no", "yes"]
    assert names_of_outcomes(Categorical(), 3, ()) == ["0", "1", "2"]
    assert names_of_outcomes(Bernoulli(), None, ()) == ["0", "1"]
    with pytest.raises(SettingError, match="predicts numbers"):
        names_of_outcomes(Gaussian(), None, ())


def test_costs_say_which_class_must_not_be_missed():
    assert costs_in_words(CLINIC, NAMES).startswith(
        "costs: 10 for the answer benign where malignant is right"
    )
    assert costs_in_words(Costs(wrong=2, defer=0.2), ["a", "b", "c"]) == (
        "costs: 2 for a wrong answer, 0.2 for deferring"
    )
    with pytest.raises(SettingError, match="2 classes"):
        costs_in_words(CLINIC, ["a", "b", "c"])


def test_decisions_are_counted_in_the_order_of_classes():
    assert counts_in_words(Counter(["defer", "malignant", "benign", "benign"]), NAMES) == (
        "2 benign, 1 malignant, 1 defer"
    )
