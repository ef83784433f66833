"""How fast all K^4 members of a layer ensemble run by a plan, beside one after the other.

    python benchmarks/layer_ensembles_speed.py [--only paper small] [--rounds 15] [--busy]

The networks are the 4-layer MNIST CNN of the Layer Ensembles paper (Fig. 3) with activations, at batch 2, and
its small variant at batch 16. One after the other is timed on a sample of the members and multiplied, in
rounds that alternate with the plan; a line is the median of the ratios, beside the ratio of multiply-adds,
which bounds it where time is spent on these alone. Bytes are those of activations, as planned and as
measured; `depth first` is the least that `memory` may be.
"""

import random
import re
from functools import partial

import torch
from timing import Line, line, measure, rounds
from torch import Tensor, nn

import pluribus as pl
from pluribus.errors import InputError
from pluribus.methods import LayerEnsembles

SAMPLE = 40
"""Members that are timed one after the other."""


def cnn(first: int, second: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, first, 9), nn.ReLU(), nn.Conv2d(first, second, 9, stride=2), nn.ReLU()),
        *(nn.Conv2d(second, 16, 4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)),
    )


NETWORKS = {"paper": ((256, 256), 2), "small": ((32, 32), 16)}
"""Channels of the first two layers, and the size of the batch."""


def layer_ensemble(widths: tuple[int, int], options: int, x: Tensor) -> pl.Ensemble:
    method = LayerEnsembles(options=options, prior_scale=0, draws=options**4)
    return pl.convert(cnn(*widths), method, example=x).eval()


def compare(name: str, options: int, number: int) -> Line:
    torch.manual_seed(0)
    widths, batch = NETWORKS[name]
    x = torch.randn(batch, 1, 28, 28)
    ensemble = layer_ensemble(widths, options, x)
    rows = ensemble.members.index.rows(training=False)
    sample = random.Random(0).sample(rows, min(SAMPLE, len(rows)))
    networks = [ensemble.member(row) for row in sample]
    with torch.no_grad():
        times = rounds(
            {"alone": lambda: [net(x) for net in networks], "planned": lambda: ensemble(x)}, number
        )
    times["alone"] = [one * len(rows) / len(sample) for one in times["alone"]]
    found = ensemble.explain(x)
    speed, bound = line("alone", "planned", times), found.multiply_adds.ratio
    return {
        "network": name,
        "options": options,
        "members": len(rows),
        "bound by multiply-adds": round(bound, 2),
        "share of the bound": round(speed["median"] / bound, 2),
        **speed,
        "layer calls": [found.layer_calls.planned, found.layer_calls.alone],
        "peak bytes, planned": found.peak_bytes.planned,
        "peak bytes, measured": pl.cost(ensemble, x).peak_activation_bytes,
        "peak bytes, depth first": least_memory(ensemble, x),
        "peak bytes, one after the other": found.peak_bytes.alone,
    }


def least_memory(ensemble: pl.Ensemble, x: Tensor) -> int:
    try:
        ensemble.explain(x, memory=1)
    except InputError as error:
        return int(re.findall(r"at least (\d+)", str(error))[0])
    return 1


def all_options(name: str, number: int) -> list[Line]:
    return [compare(name, options, number) for options in (2, 3, 4, 5, 6)]


if __name__ == "__main__":
    measure("layer_ensembles_speed", {name: partial(all_options, name) for name in NETWORKS})
