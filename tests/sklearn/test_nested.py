"""Settings inside of parameters are listed, changed and refused by their nested names."""

import pytest

from pluribus import Training
from pluribus.errors import SettingError
from pluribus.methods import DeepEnsembles
from pluribus.sklearn.nested import change_settings, list_settings, split_nested


def test_settings_are_listed_by_nested_names():
    assert list_settings("method", "mc_dropout(rate=0.2)")["method__rate"] == 0.2
    assert list_settings("training", None)["training__batch"] == Training().batch
    assert list_settings("method", "unknown") == {}
    assert list_settings("method", 3) == {}


def test_change_makes_new_settings():
    before = DeepEnsembles(members=2)
    assert change_settings("method", before, {"members": 5}) == DeepEnsembles(members=5)
    assert before.members == 2


@pytest.mark.parametrize(
    ("value", "changes", "message"),
    [
        (DeepEnsembles(), {"member": 5}, "Did you mean"),
        (DeepEnsembles(), {"members": 0}, "members must be at least 1"),
        ("unknown", {"members": 5}, "method must hold settings, so that method__members can be set"),
    ],
)
def test_change_refuses_what_does_not_suit(value, changes, message):
    with pytest.raises(SettingError, match=message):
        change_settings("method", value, changes)


def test_plain_parameters_stay_plain():
    plain, nested = split_nested({"hidden": (3,), "method__members": 2, "other__x": 1})
    assert plain == {"hidden": (3,), "other__x": 1}
    assert nested == {"method": {"members": 2}}
