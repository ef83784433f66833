"""Shared layers: every combination of options is the network with these options."""

import itertools

import torch
from torch.func import functional_call
from torch.testing import assert_close

from pluribus.testbed.networks import make_mlp
from pluribus.testbed.shared_layers import run_all_options


def test_all_options_equal_one_network_after_the_other():
    problems, count, networks = 2, 3, [make_mlp(4, 8).double() for _ in range(6)]
    states = [dict(network.named_parameters()) for network in networks]
    options = {
        name: torch.stack([state[name] for state in states]).unflatten(0, (problems, count))
        for name in states[0]
    }
    x = torch.randn(problems, 5, 4).double()
    found = run_all_options(options, x)
    assert found.shape == (problems, 27, 5)
    for problem in range(problems):
        for place, row in enumerate(itertools.product(range(count), repeat=3)):
            own = {}
            for layer, option in zip(("0", "2", "4"), row, strict=True):
                for kind in ("weight", "bias"):
                    own[f"{layer}.{kind}"] = options[f"{layer}.{kind}"][problem, option]
            expected = functional_call(networks[0], own, (x[problem],)).squeeze(1)
            assert_close(found[problem, place], expected)
