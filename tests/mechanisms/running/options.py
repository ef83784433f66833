"""Rows as choices of one option per layer, to plan with."""

import itertools

import torch
from torch import nn

import pluribus as pl
from pluribus.mechanisms.members.code import PlainCode
from pluribus.mechanisms.members.combinations import draw_rows, keep_rows
from pluribus.mechanisms.members.index import Combinations
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.options import OptionTensors, tie_sites
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.network.layers import find_sites
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import select_output
from pluribus.methods import Single
from tests.cases import run, seeded


def options(network, counts):
    """A bank of options for every layer with parameters, norms too; all combinations are rows, up to 128.

    Args:
        network: Whose tensors these are.
        counts: How many options a layer has, in the order of the layers and from the start again.
    """
    held, generator = network.tensors(), seeded(1)
    found = [site for site in find_sites(network.module) if site.parameters]
    own = {}
    for site, count in zip(found, itertools.cycle(counts), strict=False):
        for name in site.parameters:
            if name not in own:  # tied ones go with the first layer
                noise = torch.randn(count, *held[name].shape, generator=generator, dtype=torch.float64)
                own[name] = held[name].detach() + 0.3 * noise.to(held[name])
    sites = tie_sites({site.name: site.parameters for site in found})
    tensors = OptionTensors(network, own, sites)
    kept = keep_rows(list(tensors.sizes.values()), 128, seeded(0))
    index = Combinations(tensors.sizes, kept, train_draws=1)
    return Members(index, tensors, PlainCode.of(network.module, network.output), lowers=True).eval()


def some(bank, count, seed=0):
    """Random rows, the first of them twice."""
    rows = draw_rows(list(bank.tensors.sizes.values()), count - 1, seeded(seed))
    return [*rows, rows[0]]


def mixed(model, x, counts):
    """An ensemble in eval mode whose rows pick options."""
    ensemble = pl.convert(model, Single(), example=x).eval()
    ensemble.members = options(Network(model, x), counts)
    return ensemble


def alone(ensemble, model, rows, x):
    """Every row by itself."""
    networks = [materialise(model, held).eval() for held in ensemble.members.tensors.of(rows)]
    with torch.no_grad():
        return torch.stack([select_output(run(network, x)) for network in networks])


def chain(*widths, activation=nn.ReLU):
    layers = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), activation())]
    return nn.Sequential(*layers[:-1]).double()
