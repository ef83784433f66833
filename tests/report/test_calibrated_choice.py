"""The recommendation names the NLL that it was made by, and what calibrated numbers would choose."""

from pluribus.report.recommendation import recommend
from tests.report.records import classes, only_group


def told(single, deep, metric=None):
    """Return the sentences on calibration, with these calibrated NLLs."""
    group = only_group(
        classes(posthoc={"scaled_nll": single}),
        classes("deep_ensembles", skill=4.0, posthoc={"scaled_nll": deep}),
    )
    return recommend(group, metric=metric).calibration[1:]


def test_raw_choice_is_told():
    (sentence,) = told(0.5, 0.25)
    assert sentence == "It was chosen by the raw NLL; stored ensembles predict calibrated, with NLL 0.250."


def test_other_choice_of_calibrated_numbers_is_named():
    (sentence,) = told(0.125, 0.25)
    assert "After calibration single has the best: 0.125 (--metric calibrated_nll chooses by it)." in sentence


def test_choice_by_calibrated_numbers_needs_no_word():
    assert told(0.125, 0.25, "calibrated_nll") == ()


def test_nothing_is_told_without_calibrated_numbers():
    group = only_group(classes(), classes("deep_ensembles", skill=4.0))
    assert recommend(group).calibration == ()
