"""Width of a network as an axis."""

import pytest

from pluribus.axes import OneOf
from pluribus.errors import SettingError
from pluribus.search.width import width_axis
from tests.search.cases import network


def test_width_is_halved_and_doubled():
    assert width_axis(network, "network") == OneOf((2, 4, 8))
    assert width_axis(lambda width=1: None, "network") == OneOf((1, 2))


@pytest.mark.parametrize("build", [lambda: None, lambda width: None, print])
def test_network_without_a_width_is_refused(build):
    with pytest.raises(SettingError, match="parameter `width`"):
        width_axis(build, "mine")
