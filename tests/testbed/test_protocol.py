"""Protocol: results of one direction serve the other."""

import pytest

from pluribus.errors import SettingError
from pluribus.testbed.protocol import Protocol


def test_results_depend_on_everything_but_the_direction():
    protocol = Protocol(steps=3)
    assert protocol.in_direction("printed").training == protocol.training
    assert Protocol(steps=4).training != protocol.training
    assert Protocol(noise="absolute", steps=3).training != protocol.training


@pytest.mark.parametrize("wrong", [{"noise": "loud"}, {"direction": "up"}, {"steps": 0}, {"rate": 0.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        Protocol(**wrong)
