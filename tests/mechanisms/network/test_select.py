"""Selecting layers by type, by name or by predicate."""

import pytest
from torch import nn

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.select import select, there_are
from pluribus.mechanisms.network.sites import find_sites
from tests import zoo


def selected(model, selector):
    return [site.name for site in select(find_sites(model), selector, "include")]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (nn.Linear, ["7"]),
        (nn.Conv2d, ["0", "3.0", "3.3"]),
        (nn.modules.conv._ConvNd, ["0", "3.0", "3.3"]),
        ("3.*", ["3.0", "3.1", "3.2", "3.3"]),
        ("*0", ["0", "3.0"]),
        ("[01]", ["0", "1"]),
        ("7", ["7"]),
        (lambda name, layer: getattr(layer, "bias", 0) is None, ["0"]),
        ([nn.Linear, "0"], ["0", "7"]),
        ((["7"], ("0", nn.BatchNorm2d)), ["0", "1", "3.1", "7"]),
        ({"0", "7"}, ["0", "7"]),
        ((one for one in ("7", "0")), ["0", "7"]),
    ],
)
def test_layers_are_selected_in_their_order(selector, expected):
    assert selected(zoo.residual_cnn(), selector) == expected


def test_every_name_of_a_layer_selects_it_once():
    for name in ("1.0", "1.2", "3.1", ["1.0", "3.1"], lambda name, layer: name == "3.1"):
        assert selected(zoo.repeated_child(), name) == ["1.0"]


def test_the_root_is_selected_by_the_empty_name():
    assert selected(nn.Linear(3, 2), "") == [""]
    assert selected(nn.Linear(3, 2), "*") == [""]


def test_case_matters_in_names():
    with pytest.raises(ConversionError, match="'HEAD' picks none"):
        selected(zoo.SharedModule(), "HEAD")


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        (nn.GRU, "GRU"),
        ("heads", "'heads'"),
        (["head", "heads"], "'heads'"),
        (lambda name, layer: False, "<function"),
    ],
)
def test_a_selector_that_picks_nothing_is_refused_with_what_there_is(selector, shown):
    message = (
        rf"include must pick at least one layer, however: {shown}.*type Linear, named first, middle, head\."
    )
    with pytest.raises(ConversionError, match=message):
        selected(zoo.SharedModule(), selector)


@pytest.mark.parametrize("selector", [[], (), set()], ids=str)
def test_no_selector_selects_nothing(selector):
    assert selected(zoo.SharedModule(), selector) == []


@pytest.mark.parametrize("selector", [3, int, None, [3.0], nn.Linear(2, 2)], ids=str)
def test_what_is_no_selector_is_refused(selector):
    with pytest.raises(
        ConversionError, match="include must be layer types, name patterns or predicates, however"
    ):
        selected(zoo.SharedModule(), selector)


def test_errors_name_the_option():
    with pytest.raises(ConversionError, match=r"^exclude must pick"):
        select(find_sites(nn.Linear(3, 2)), "x", "exclude")


def test_there_are_names_types_and_at_most_eight_layers():
    assert there_are([]) == "The network has layers of type none, named nothing."
    assert there_are(find_sites(nn.Linear(3, 2))) == "The network has layers of type Linear, named ''."
    sites = find_sites(nn.Sequential(*(nn.ReLU() for _ in range(10))))
    assert there_are(sites).endswith("of type ReLU, named 0, 1, 2, 3, 4, 5, 6, 7 and 2 more.")
