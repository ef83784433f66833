"""How fast ensembles of small networks are, beside one network and beside networks one by one.

    python benchmarks/packed_speed.py [--only eval train stacked order] [--rounds 15] [--busy]

`packed` is PE-(2,4,1) of ResNet-18, `single` the network in its better memory format; `timing.py` says how
times are taken.
"""

from functools import partial

import torch
import torch.nn.functional as F
from timing import LAST, OPTIMIZERS, Contestants, better, line, measure, rounds, step
from torch import Tensor, nn

import pluribus as pl
from pluribus.backbones import resnet18
from pluribus.mechanisms.running import channels_last
from pluribus.methods import DeepEnsembles, PackedEnsembles, Single


def inference(number: int) -> list[dict[str, object]]:
    x = torch.randn(32, 3, 32, 32)
    single, last = resnet18().eval(), resnet18().to(memory_format=LAST).eval()
    x_last = x.contiguous(memory_format=LAST)
    packed = pl.convert(resnet18(), PackedEnsembles(members=4, alpha=2), example=x[:2]).eval()
    fast, fast_single = packed.freeze(), pl.convert(resnet18(), Single()).freeze()
    with torch.no_grad():
        times = rounds(
            {
                "single, contiguous": lambda: single(x),
                "single, channels last": lambda: last(x_last),
                "single, frozen": lambda: fast_single(x),
                "packed": lambda: packed(x),
                "packed, frozen": lambda: fast(x),
            },
            number,
            1,
        )
    best = better(times, ["single, contiguous", "single, channels last"])
    pairs = [("packed, frozen", best), ("packed", best), ("packed, frozen", "single, frozen")]
    return [line(*pair, times) for pair in pairs]


def training(number: int) -> list[dict[str, object]]:
    x, y = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    contestants: Contestants = {}
    for order, form in (("contiguous", torch.contiguous_format), ("channels last", LAST)):
        images = x.contiguous(memory_format=form)
        single = resnet18().to(memory_format=form)
        packed = pl.convert(
            resnet18().to(memory_format=form), PackedEnsembles(members=4, alpha=2), example=images[:2]
        ).train()
        contestants[f"single, {order}"] = step(
            single.parameters(), "sgd", lambda net=single, x=images: F.cross_entropy(net(x), y)
        )
        contestants[f"packed, {order}"] = step(
            packed.parameters(), "sgd", lambda net=packed, x=images: net.loss(x, y)
        )
    times = rounds(contestants, number, 1)
    best = better(times, ["single, contiguous", "single, channels last"])
    return [line(f"packed, {order}", best, times) for order in ("channels last", "contiguous")]


def stacked(number: int) -> list[dict[str, object]]:
    """Twenty networks 13-50-2 on batches of 100, with torch's own Gaussian loss where they are plain."""
    x, y = torch.randn(100, 13), torch.randn(100, 1)
    lines = []
    for kind in OPTIMIZERS:
        networks = [small() for _ in range(20)]
        steps = [step(net.parameters(), kind, lambda net=net: gaussian(net, x, y)) for net in networks]
        singles = [pl.convert(net, Single(), "gaussian").train() for net in networks]
        ours = [step(one.parameters(), kind, lambda one=one: one.loss(x, y)) for one in singles]
        ensemble = pl.convert(small(), DeepEnsembles(members=20), "gaussian").train()
        names = [f"one after the other, {kind}", f"ensembles of one, {kind}", f"stacked, {kind}"]
        contestants: Contestants = {
            names[0]: lambda steps=steps: [run() for run in steps],
            names[1]: lambda steps=ours: [run() for run in steps],
            names[2]: step(ensemble.parameters(), kind, lambda one=ensemble: one.loss(x, y)),
        }
        times = rounds(contestants, 10 * number, 3)
        lines += [line(name, names[2], times) for name in names[:2]]
    fast = ensemble.freeze()
    with torch.no_grad():
        runs: Contestants = {
            "one after the other, eval": lambda: [net(x) for net in networks],
            "stacked, eval": lambda: fast(x),
        }
        times = rounds(runs, 10 * number, 3)
    return [*lines, line(*runs, times)]


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(13, 50), nn.ReLU(), nn.Linear(50, 2))


def gaussian(network: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    mean, raw = network(x).chunk(2, 1)
    return F.gaussian_nll_loss(mean, y, F.softplus(raw) + 1e-6)


def order(number: int) -> list[dict[str, object]]:
    """Channels last against channels first, frozen: where channels_last.NARROW lies."""
    lines = []
    for width in (8, 16, 32, 48, 64):
        single = pl.convert(resnet18(width=width), Single())
        contestants: Contestants = {}
        for name, limit in (("channels last", float("inf")), ("channels first", 0)):
            channels_last.NARROW = limit
            contestants[f"{name}, width {width}"] = partial(single.freeze(), torch.randn(32, 3, 32, 32))
        lines.append(line(*contestants, rounds(contestants, number, 1)))
    return lines


PARTS = {"eval": inference, "train": training, "stacked": stacked, "order": order}


if __name__ == "__main__":
    measure("packed_speed", PARTS)
