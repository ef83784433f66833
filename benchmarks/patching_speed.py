"""How fast 100 draws of patched networks run by a plan, beside one after the other; and a training step.

    python benchmarks/patching_speed.py [--only norm output last training] [--rounds 15] [--busy]

A CNN of three convolutions with BatchNorm at batch 32, as wide as the middle of a ResNet-18, so that
multiply-adds are most of the time of a pass. With norms patched from the first layer on there is little to
share; with the output alone patched, everything before it runs once. Where the last norm is patched too, what
is left for each draw is that norm, a ReLU and a mean, which are no multiply-adds. A line is the ratio of both
times, beside the ratios of multiply-adds and of bytes that `explain` plans.

`training` is a step of that network with Adam, norms and output patched, beside that of the plain network:
with a draw for each sample, the default, and with one for the batch, the paper's.
"""

from functools import partial
from itertools import pairwise

import torch
from timing import Contestants, Line, line, measure, rounds, step
from torch import nn

import pluribus as pl
from pluribus.methods import ECMP, EMP, Single

METHODS = {"emp": EMP, "ecmp": ECMP}
WHERE: dict[str, str | tuple[str, ...]] = {
    "norm": ("norm", "output"),
    "output": "output",
    "last": ("7", "output"),
}
"""What is patched; `last` is the last norm with the output."""
DRAWS, BATCH, SIDE = 100, 32, 28
WIDTHS = (1, 64, 128, 256)


def cnn() -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(WIDTHS):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(WIDTHS[-1], 10))


def compare(where: str, kind: str, number: int) -> Line:
    torch.manual_seed(0)
    x = torch.randn(BATCH, 1, SIDE, SIDE)
    ensemble = pl.convert(cnn(), METHODS[kind](where=WHERE[where], draws=DRAWS), example=x).eval()
    networks = [ensemble.member(row) for row in range(len(ensemble.weights))]
    with torch.no_grad():
        times = rounds(
            {"alone": lambda: [net(x) for net in networks], "planned": lambda: ensemble(x)}, number
        )
    speed, explained = line("alone", "planned", times), ensemble.explain(x)
    planned = explained.multiply_adds.ratio
    return {
        "method": kind,
        "patched": where,
        "rows": len(networks),
        "planned by multiply-adds": round(planned, 2),
        "planned by bytes": round(explained.written_bytes.ratio, 2),
        "share of the plan": round(speed["median"] / planned, 2),
        **speed,
    }


def both(where: str, number: int) -> list[Line]:
    return [compare(where, kind, number) for kind in METHODS]


def training(number: int) -> list[Line]:
    """Return the time of a training step over that of one network."""
    x, y = torch.randn(BATCH, 1, SIDE, SIDE), torch.arange(BATCH) % 10
    methods: dict[str, pl.Method] = {"single": Single()}
    for name, kind in METHODS.items():
        methods |= {name: kind(), f"{name}, a draw for the batch": kind(per_sample=False)}
    contestants: Contestants = {}
    for name, method in methods.items():
        ensemble = pl.convert(cnn(), method, example=x, seed=0).train()
        contestants[name] = step(ensemble.parameters(), "adam", partial(ensemble.loss, x, y))
    times = rounds(contestants, number)
    return [line(name, "single", times) for name in methods if name != "single"]


if __name__ == "__main__":
    measure("patching_speed", {where: partial(both, where) for where in WHERE} | {"training": training})
