"""Cost of 20 members of a layer ensemble with 5 options beside 30 networks, on the testbed's network.

    python benchmarks/layer_ensembles_twenty.py [--rounds 15] [--busy]

The Layer Ensembles paper (§IV): 20 ranked members are at least 1.5 times as fast as 30 networks, for a sixth
of the memory. Which members are ranked first depends on the problem, and so does how much they share; here 20
of 125 are drawn at random three times, and the least shared 20 bound what ranking can do. Both ensembles are
frozen; times are of a batch of 100, multiply-adds are exact.
"""

import random
from functools import partial

import torch
from timing import Line, line, measure, rounds
from torch import nn

import pluribus as pl
from pluribus.methods import DeepEnsembles, LayerEnsembles
from pluribus.testbed.networks import make_mlp

OPTIONS, MEMBERS, NETWORKS, BATCH = 5, 20, 30, 100


def numbers(module: nn.Module) -> int:
    """Return how many numbers are stored."""
    return sum(value.numel() for value in module.parameters())


def least_shared() -> list[int]:
    """Return 20 members that share nothing behind the first layer, by their positions among 125."""
    return [OPTIONS * pair + pair % OPTIONS for pair in range(MEMBERS)]


def compare(inputs: int, number: int) -> list[Line]:
    """Compare several choices of 20 members with 30 networks."""
    x = torch.randn(BATCH, inputs)
    network = partial(make_mlp, inputs)
    deep = pl.convert(network, DeepEnsembles(NETWORKS), "point", example=x[:2]).eval()
    layers = pl.convert(network, LayerEnsembles(OPTIONS, prior_scale=0.0), "point", example=x[:2]).eval()
    every = range(OPTIONS**3)
    positions = {f"random {seed}": random.Random(seed).sample(every, MEMBERS) for seed in range(3)}
    positions["least shared"] = least_shared()
    lines = list[Line]()
    frozen = deep.freeze()
    work = deep.explain(x).multiply_adds.alone
    for name, chosen in positions.items():
        few = layers.shrink(chosen)
        shared = few.freeze()
        with torch.no_grad():
            times = rounds({"networks": lambda: frozen(x), "layers": lambda run=shared: run(x)}, number, 5)
        found = line("networks", "layers", times)
        found |= {
            "inputs": inputs,
            "members": name,
            "stored, networks / layers": round(numbers(deep) / numbers(layers), 3),
            "multiply-adds, networks / layers": round(work / few.explain(x).multiply_adds.planned, 3),
        }
        lines.append(found)
    return lines


if __name__ == "__main__":
    measure("layer_ensembles_twenty", {f"inputs {one}": partial(compare, one) for one in (10, 100)})
