"""Names of networks with their sizes."""

from pluribus.network_name import split_sizes, with_sizes


def test_name_is_split_from_its_sizes():
    assert split_sizes("cnn") == ("cnn", {})
    assert split_sizes("mine:build(width=8, depth=2)") == ("mine:build", {"width": 8, "depth": 2})


def test_sizes_of_a_name_are_changed():
    assert with_sizes("cnn", {}) == "cnn"
    assert with_sizes("cnn(width=8)", {"width": 4}) == "cnn(width=4)"
    assert with_sizes("cnn(width=8)", {"depth": 2}) == "cnn(width=8, depth=2)"
    assert with_sizes("ours (v2)", {"depth": 2}) == "ours (v2)(depth=2)"
