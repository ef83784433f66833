"""One line about a run: short, with names, numbers and errors."""

from tests.report.records import classes, failed, numbers


def test_records_are_printed_in_a_line():
    shown = str(classes("deep_ensembles", seed=3))
    assert shown.startswith("Record(deep_ensembles on digits, cnn, seed 3: accuracy 0.")
    assert shown.endswith("4 × multiply-adds, 4 × time)")
    assert len(shown) < 160
    assert "rmse" in str(numbers())


def test_failed_runs_tell_the_first_line_of_their_error():
    assert (
        str(failed(error="ValueError: no\nmore"))
        == "Record(mimo on digits, cnn, seed 0: failed: ValueError: no)"
    )


def test_runs_without_numbers_say_so():
    assert str(classes(metrics={}, cost={})).endswith("seed 0: nothing measured)")
