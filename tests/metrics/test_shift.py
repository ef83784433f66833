"""Corruption errors by hand and by the tables of the patching paper; refusals."""

import pytest
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.metrics import ShiftErrors, mean_corruption_error, relative_mean_corruption_error
from pluribus.metrics.shift import corruption_errors, relative_corruption_errors

VANILLA = ShiftErrors(0.3, {"fog": [0.4, 0.6], "snow": [0.5, 0.9]})
MODEL = ShiftErrors(0.2, {"fog": [0.3, 0.5], "snow": [0.3, 0.6]})
TABLE_7 = [98.4, 98.2, 98.5, 97.9, 98.8, 96.9, 98.3, 99.6, 101.1, 99.8, 97.9, 100, 95.4, 91.3, 94.2]


def test_errors_are_summed_over_severities_before_the_division():
    assert_close(corruption_errors(MODEL, VANILLA), {"fog": 0.8 / 1.0, "snow": 0.9 / 1.4})
    assert_close(mean_corruption_error(MODEL, VANILLA), (0.8 + 0.9 / 1.4) / 2)


def test_relative_errors_subtract_each_models_own_clean_error():
    expected = {"fog": (0.1 + 0.3) / (0.1 + 0.3), "snow": (0.1 + 0.4) / (0.2 + 0.6)}
    assert_close(relative_corruption_errors(MODEL, VANILLA), expected)
    assert_close(relative_mean_corruption_error(MODEL, VANILLA), (1 + 0.5 / 0.8) / 2)
    misprinted = {"fog": 0.4 / (1.0 - 2 * 0.2), "snow": 0.5 / (1.4 - 2 * 0.2)}
    assert relative_corruption_errors(MODEL, VANILLA) != pytest.approx(misprinted)


def test_vanilla_is_one_against_itself():
    assert mean_corruption_error(VANILLA, VANILLA) == 1
    assert relative_mean_corruption_error(VANILLA, VANILLA) == 1


def test_the_mean_of_the_patching_papers_table_is_its_first_column():
    model = ShiftErrors(0.1, {str(c): [value / 200] * 5 for c, value in enumerate(TABLE_7)})
    vanilla = ShiftErrors(0.1, {str(c): [0.5] * 5 for c in range(15)})
    assert_close(mean_corruption_error(model, vanilla), 0.978, atol=5e-4, rtol=0)


def test_a_model_that_gains_by_corruption_is_below_zero():
    model = ShiftErrors(0.7, {"fog": [0.4, 0.6], "snow": [0.5, 0.6]})
    assert relative_mean_corruption_error(model, VANILLA) < 0


@pytest.mark.parametrize(
    ("clean", "corrupted", "message"),
    [
        (0.1, {}, "at least 1 corruption .* got no corruption"),
        (0.1, {"fog": []}, "got fog has none"),
        (0.1, {"fog": [37.2]}, r"0 to 1, got 37\.2 for fog\. Divide percentages by 100"),
        (-0.1, {"fog": [0.2]}, r"0 to 1, got -0\.1 for clean"),
        (float("nan"), {"fog": [0.2]}, "got nan for clean"),
    ],
)
def test_errors_that_are_no_shares_are_refused(clean, corrupted, message):
    with pytest.raises(InputError, match=message):
        ShiftErrors(clean, corrupted)


@pytest.mark.parametrize("corrupted", [{"fog": [0.4, 0.6]}, {"fog": [0.4], "snow": [0.5, 0.9]}])
def test_models_that_ran_on_different_data_are_refused(corrupted):
    with pytest.raises(InputError, match=r"same corruptions and severities, got .*fog"):
        mean_corruption_error(ShiftErrors(0.3, corrupted), VANILLA)


@pytest.mark.parametrize("harmless", [0.3, 0.2, 0.1 + 0.2])
def test_a_corruption_that_costs_vanilla_nothing_is_refused_by_name(harmless):
    vanilla = ShiftErrors(0.3, {"fog": [0.4, 0.6], "snow": [harmless, harmless]})
    with pytest.raises(InputError, match=r"cost the vanilla network something, got .* for snow\. Leave"):
        relative_mean_corruption_error(MODEL, vanilla)
