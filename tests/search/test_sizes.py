"""Width and depth of a network as axes."""

import pytest

from pluribus.axes import OneOf
from pluribus.data import two_moons
from pluribus.errors import SettingError
from pluribus.runs.named_network import Build
from pluribus.search.sizes import size_axis
from tests.search.cases import network


def test_sizes_are_halved_and_doubled():
    assert size_axis(network, "network", "width") == OneOf((2, 4, 8))
    assert size_axis(lambda width=1: None, "network", "width") == OneOf((1, 2))
    build = Build("residual_mlp(depth=2)", two_moons(train=20))
    assert size_axis(build, "residual_mlp", "depth") == OneOf((1, 2, 4))
    assert size_axis(build, "residual_mlp", "width") == OneOf((64, 128, 256))


@pytest.mark.parametrize("build", [lambda: None, lambda width: None, print])
def test_network_without_a_width_is_refused(build):
    with pytest.raises(SettingError, match="parameter `width`"):
        size_axis(build, "mine", "width")


def test_network_without_a_depth_is_refused():
    with pytest.raises(SettingError, match="parameter `depth`"):
        size_axis(Build("mlp", two_moons(train=20)), "mlp", "depth")
