"""Rows as choices of one option per layer, to plan with."""

import itertools
import math
import random

import torch
from torch import nn

import pluribus as pl
from pluribus.binding import Binding, materialise, tensors
from pluribus.methods import Single
from pluribus.network import Network
from pluribus.network.output import select_output
from pluribus.surgery import find_sites
from tests.cases import run, seeded


class Options(Binding):
    """Some options for every layer with parameters; a row picks one of each.

    Args:
        network: Whose tensors these are.
        options: How many options a layer has, in the order of the layers and from the start again.
        rows: The rows of `ensemble(x)`; all there are.
    """

    planned = True

    def __init__(self, network, options, rows=None):
        held, generator = network.tensors(), seeded(1)
        sites = [site for site in find_sites(network.module) if site.parameters]
        counts = dict(zip(sites, itertools.cycle(options), strict=False))
        own, places = {}, {}
        for place, (site, count) in enumerate(counts.items()):
            for name in site.parameters:
                if name not in own:  # tied ones go with the first layer
                    noise = torch.randn(count, *held[name].shape, generator=generator, dtype=torch.float64)
                    own[name] = held[name].detach() + 0.3 * noise.to(held[name])
                    places[name] = place
        self.places, self.counts, self.given = places, list(counts.values()), rows
        super().__init__(network, own, len(rows) if rows else math.prod(self.counts))

    def rows(self):
        return self.given or list(itertools.product(*map(range, self.counts)))

    def pick(self, members):
        return members

    def stacked_rows(self):
        return None

    def choices(self, row):
        return {name: row[place] for name, place in self.places.items()}

    def bind(self, rows):
        own = {name: tensor.unbind() for name, tensor in tensors(self.own).items()}
        for row in rows:
            chosen = {name: own[name][option] for name, option in self.choices(row).items()}
            yield {**self.shared_tensors(), **chosen}

    def some(self, count, seed=0):
        """Random rows, the first of them twice."""
        draw = random.Random(seed)
        rows = [tuple(draw.randrange(count) for count in self.counts) for _ in range(count - 1)]
        return [*rows, rows[0]]


def mixed(model, x, options, rows=None):
    """An ensemble in eval mode whose rows pick options."""
    ensemble = pl.convert(model, Single(), example=x).eval()
    ensemble.binding = Options(Network(model, x), options, rows).eval()
    return ensemble


def alone(ensemble, model, rows, x):
    """Every row by itself."""
    networks = [materialise(model, held).eval() for held in ensemble.binding.bind(rows)]
    with torch.no_grad():
        return torch.stack([select_output(run(network, x)) for network in networks])


def chain(*widths, activation=nn.ReLU):
    layers = [layer for pair in itertools.pairwise(widths) for layer in (nn.Linear(*pair), activation())]
    return nn.Sequential(*layers[:-1]).double()
