"""Options of a server have ranges."""

import pytest

from pluribus.errors import SettingError
from pluribus.serving.options import ServerOptions


def test_a_server_listens_at_loopback_by_default():
    assert ServerOptions().host == "127.0.0.1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_batch": 0}, "max_batch must be at least 1"),
        ({"port": 70_000}, "port must be at most 65535"),
        ({"max_wait_ms": -1.0}, "max_wait_ms must be at least 0"),
        ({"queue": 0}, "queue must be at least 1"),
        ({"drift_level": 1.0}, "drift_level must be below 1"),
    ],
)
def test_values_out_of_range_are_refused(changes, message):
    with pytest.raises(SettingError, match=message):
        ServerOptions(**changes)
