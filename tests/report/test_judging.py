"""A metric to judge by is known before anything is run."""

from pytest import raises

from pluribus.errors import SettingError
from pluribus.report.judging import check_metric


def test_a_metric_that_no_group_has_is_refused_before_anything_is_run():
    check_metric(None)
    check_metric("rmse")
    with raises(SettingError, match=r"metric must be one of accuracy, .*nll.*got 'elo'"):
        check_metric("elo")
    with raises(SettingError, match=r"Did you mean 'accuracy'\?"):
        check_metric("Accurcy")
