"""Drawn outputs: parts go with a tensor until something else than a norm reads it."""

import copy

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.network.drawn_outputs import NOISE, act_on_parts, draw_outputs, find_followed
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.layers import find_sites

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


class Residual(nn.Module):
    """One ReLU layer behind a drawn output, behind a sum, and a function behind a drawn output."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = self.relu(self.relu(self.first(x)) + self.second(x))
        return self.third(x).tanh()


def drawn(activation):
    torch.manual_seed(0)
    module = Residual().eval()
    sites = [site for site in find_sites(module) if isinstance(site.module, nn.Linear)]
    draw_outputs(sites, factor=0.5, fixed=False, per_sample=False)
    act_on_parts(module, [], activation, "end")
    for layer in (module.first, module.second, module.third):
        getattr(layer, NOISE).copy_(torch.arange(4.0) - 1)
    return module


def parts(layer, x):
    mean = nn.functional.linear(x, layer.weight, layer.bias)
    return mean, 0.5 * getattr(layer, NOISE) * layer.drawn_deviation(x)


def test_an_activation_in_two_places_acts_on_parts_where_it_gets_a_drawn_output():
    module = drawn("mean")
    mean, spread = parts(module.first, X)
    hidden = (mean.relu() + spread + sum(parts(module.second, X))).relu()
    assert_close(module(X), sum(parts(module.third, hidden)).tanh())


def test_layers_are_found_whose_outputs_go_to_an_activation_layer():
    assert find_followed(drawn("mean"), Inputs.of(X)) == {"first"}


def test_a_copy_draws_by_its_own_numbers():
    module = drawn("mean")
    other = copy.deepcopy(module)
    for layer in (other.first, other.second, other.third):
        getattr(layer, NOISE).zero_()
    assert_close(other(X)[0], Residual.forward(_plain(module), X)[0])
    assert not torch.equal(other(X), module(X))


def _plain(module):
    """Return the network of the means."""
    plain = Residual()
    plain.load_state_dict({name: module.state_dict()[name] for name in plain.state_dict()})
    return plain
