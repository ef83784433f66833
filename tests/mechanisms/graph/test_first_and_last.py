"""Both ends of a network, in the order of its data flow."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.graph.first_and_last import find_ends, order_of_run
from pluribus.mechanisms.network.layers import find_sites
from pluribus.mechanisms.network.network import Network
from tests.cases import case_named


def ends(model, example=None, output=None):
    network = Network(model, example, output)
    return tuple(site and site.name for site in find_ends(network, find_sites(network.module)))


class Backwards(nn.Module):
    """Its layers run in another order than they are named."""

    def __init__(self):
        super().__init__()
        self.last, self.norm, self.first = nn.Linear(5, 2), nn.BatchNorm1d(4), nn.Linear(4, 5)

    def forward(self, x):
        return self.last(self.first(self.norm(x)))


class Auxiliary(nn.Module):
    """Returns what a second head says beside the prediction, after it and before."""

    def __init__(self):
        super().__init__()
        self.early, self.body, self.head, self.late = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        first, h = self.early(x), self.body(x)
        return self.head(h), self.late(h), first


@pytest.mark.parametrize(("output", "last"), [(0, "head"), (1, "late"), (lambda results: results[0], "head")])
def test_ends_are_those_of_the_prediction(output, last):
    assert ends(Auxiliary(), torch.zeros(3, 4), output) == ("body", last)


def test_ends_follow_the_data_flow_and_are_no_norms():
    assert ends(Backwards(), torch.zeros(3, 4)) == ("first", "last")


@pytest.mark.parametrize(
    ("name", "expected"), [("root_layer", ("", "")), ("tied_embedding", ("0", "4")), ("mlp", ("0", "4"))]
)
def test_ends_of_awkward_networks(name, expected):
    case = case_named(name)
    assert ends(case.model(), case.inputs()) == expected


class Whimsical(Backwards):
    """Decides by a value, so that its data flow cannot be read."""

    def forward(self, x):
        y = super().forward(x)
        return y if y.sum() > 0 else -y


def test_a_network_that_cannot_be_read_goes_by_its_calls():
    assert ends(Whimsical(), torch.zeros(3, 4)) == ("first", "last")


class Scaled(Auxiliary):
    """A single number, and one for each class, come after the last layer."""

    def __init__(self):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(())), nn.PReLU(4)

    def forward(self, x):
        return self.shift(self.head(self.body(x)) * self.scale)


def test_the_last_layer_has_weights_if_any_has():
    assert ends(Scaled(), torch.zeros(3, 4)) == ("body", "head")
    assert ends(nn.Sequential(nn.Flatten(), nn.PReLU(4)), torch.zeros(3, 4)) == ("1", "1")


class Together(Backwards):
    """Reads the parameters of two norms at once."""

    def __init__(self):
        super().__init__()
        self.other = nn.LayerNorm(4)

    def forward(self, x):
        scale, shift = self.norm.weight * self.other.weight, self.norm.bias + self.other.bias
        return self.last(self.first(x * scale + shift))


def test_layers_that_are_read_at_once_all_run():
    network = Network(Together(), torch.zeros(3, 4))
    sites = find_sites(network.module)
    assert {site.name for site in order_of_run(network, sites)} == {"norm", "other", "first", "last"}


def test_layers_run_in_the_order_of_the_data_flow_as_often_as_they_are_read():
    for model in (Backwards(), Whimsical()):
        network = Network(model, torch.zeros(3, 4))
        sites = find_sites(network.module)
        assert [site.name for site in order_of_run(network, sites)] == ["norm", "first", "last"]
    network = Network(Auxiliary(), torch.zeros(3, 4), output=0)
    assert [site.name for site in order_of_run(network, find_sites(network.module))] == ["body", "head"]


def test_norms_alone_have_no_ends():
    assert ends(nn.Sequential(nn.LayerNorm(4))) == (None, None)
