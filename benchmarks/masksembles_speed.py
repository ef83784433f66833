"""How fast Masksembles are, beside one network and beside masks that are multiplied.

    python benchmarks/masksembles_speed.py [--only resnet18 wrn16_4 train] [--rounds 15] [--busy]

Four members of scale 2, batches of 32 images 32 x 32. `frozen` cuts the members out, `multiplied` repeats the
batch four times and multiplies by the masks, as the authors' code does, `one by one` runs the members in
turn with their masks. `single` is the network in its better memory format; `timing.py` says how times are
taken.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from timing import LAST, Contestants, Line, better, line, measure, rounds, step
from torch import nn

import pluribus as pl
from pluribus.backbones import resnet18, wide_resnet
from pluribus.mechanisms.members.skeleton import Skeleton, blank
from pluribus.methods import Masksembles

METHOD = Masksembles(members=4, scale=2.0)


def inference(build: Callable[[], nn.Module], number: int) -> list[Line]:
    x = torch.randn(32, 3, 32, 32)
    x_last = x.contiguous(memory_format=LAST)
    single, last = build().eval(), build().to(memory_format=LAST).eval()
    ensemble = pl.convert(build(), METHOD, example=x[:2]).eval()
    frozen, tensors = ensemble.freeze(), ensemble.members.tensors
    tiled = Skeleton(blank(ensemble._caller.module)).fill(tensors.mixed(range(4), [32] * 4)).eval()
    contestants: Contestants = {
        "single, contiguous": lambda: single(x),
        "single, channels last": lambda: last(x_last),
        "frozen": lambda: frozen(x),
        "multiplied": lambda: tiled(x.repeat(4, 1, 1, 1)),
        "one by one": lambda: ensemble(x),
    }
    with torch.no_grad():
        times = rounds(contestants, number)
    best = better(times, ["single, contiguous", "single, channels last"])
    costs = [pl.cost(one, x).multiply_adds for one in (frozen, single, ensemble)]
    counted: Line = {
        "ratio": "multiply-adds: frozen / single, multiplied / frozen",
        "exact": [round(costs[0] / costs[1], 4), round(costs[2] / costs[0], 4)],
    }
    pairs = [("frozen", best), ("multiplied", "frozen"), ("one by one", "frozen")]
    return [counted, *(line(*pair, times) for pair in pairs)]


def training(number: int) -> list[Line]:
    y = torch.randint(10, (32,))
    lines = []
    for name, build in NETWORKS.items():
        contestants: Contestants = {}
        for order, form in (("contiguous", torch.contiguous_format), ("channels last", LAST)):
            x = torch.randn(32, 3, 32, 32).contiguous(memory_format=form)
            single = build().to(memory_format=form)
            masked = pl.convert(build().to(memory_format=form), METHOD, example=x[:2]).train()
            contestants[f"{name}, {order}"] = step(
                single.parameters(), "sgd", lambda net=single, x=x: F.cross_entropy(net(x), y)
            )
            contestants[f"masked {name}, {order}"] = step(
                masked.parameters(), "sgd", lambda net=masked, x=x: net.loss(x, y)
            )
        times = rounds(contestants, number)
        best = better(times, [f"{name}, contiguous", f"{name}, channels last"])
        lines += [line(f"masked {name}, {order}", best, times) for order in ("contiguous", "channels last")]
    return lines


NETWORKS = {"resnet18": resnet18, "wrn16_4": partial(wide_resnet, 16, 4)}
PARTS = {name: partial(inference, build) for name, build in NETWORKS.items()} | {"train": training}

if __name__ == "__main__":
    measure("masksembles_speed", PARTS)
