"""The sentence about the calibration of the single network follows its numbers."""

from pluribus.report.columns import columns_of
from pluribus.report.single_calibration import single_calibrated
from tests.report.records import classes, only_group

RAW = only_group(classes(skill=1), classes(seed=1, skill=1))


def told(gain, ece=0.02):
    """Return the sentences where calibration lowers the NLL by so much and leaves such an ECE."""
    nll = next(column for column in columns_of(RAW) if column.name == "nll").cell(RAW.single).mean
    runs = [
        classes(seed=seed, skill=1, posthoc={"scaled_nll": nll - gain, "scaled_ece": ece})
        for seed in range(2)
    ]
    return list(single_calibrated(only_group(*runs)))


def test_calibration_that_makes_it_worse_is_told():
    """20 validation samples gave an NLL of 1.330 for 1.254, and the page called it calibrated already."""
    (sentence,) = told(-0.02)
    assert sentence.startswith("Calibration does not help the single network: NLL")


def test_calibration_that_gains_nothing_is_told():
    (sentence,) = told(-0.005)
    assert sentence.startswith("On clean data the single network is calibrated already: NLL")
    # A network of tables is not made surer, however unsure it is.
    (sentence,) = told(-0.005, ece=0.4)
    assert sentence.startswith("Calibration changes little for the single network: NLL")
    assert sentence.endswith("ECE 0.400.")


def test_calibration_that_helps_is_told():
    (sentence,) = told(0.02)
    assert sentence.startswith("Calibration alone helps the single network: NLL")


def test_nothing_is_told_without_the_numbers():
    assert list(single_calibrated(RAW)) == []
    assert list(single_calibrated(only_group(classes("mc_dropout")))) == []
