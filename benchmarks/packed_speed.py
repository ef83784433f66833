"""How fast ensembles of small networks are, beside one network and beside networks one by one.

    python benchmarks/packed_speed.py [--only eval train stacked order] [--rounds 15] [--busy]

`packed` is PE-(2,4,1) of ResNet-18. In every round all contestants are timed in turn, in one process with
two threads; a line is the ratio of two of them, its median over the rounds and its quartiles. `--busy` is
for a machine with much other work: one thread, and the time that the processor spends on it instead of the
time that passes. `single` is the network in its better memory format.
"""

import argparse
import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pluribus as pl
from pluribus.backbones import resnet18
from pluribus.execution import freeze
from pluribus.methods import DeepEnsembles, PackedEnsembles, Single

Contestants = dict[str, Callable[[], object]]
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
LAST = torch.channels_last
CLOCKS = {False: time.perf_counter, True: time.process_time}


def rounds(contestants: Contestants, number: int, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each contestant in each round."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    clock = CLOCKS[torch.get_num_threads() == 1]
    for round_ in range(-2, number):  # two to warm up
        for name, run in contestants.items():
            start = clock()
            for _ in range(repeats):
                run()
            if round_ >= 0:
                times[name].append((clock() - start) / repeats * 1e3)
    return times


def line(what: str, over: str, times: dict[str, list[float]]) -> dict[str, object]:
    """The ratio of two contestants."""
    ratios = [a / b for a, b in zip(times[what], times[over], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    found = {
        "ratio": f"{what} / {over}",
        "median": round(middle, 3),
        "quartiles": [round(low, 3), round(high, 3)],
    }
    return found | {"milliseconds": [round(statistics.median(times[name]), 2) for name in (what, over)]}


def better(times: dict[str, list[float]], names: list[str]) -> str:
    return min(names, key=lambda name: statistics.median(times[name]))


def step(parameters: Iterator[nn.Parameter], kind: str, loss: Callable[[], Tensor]) -> Callable[[], object]:
    """Forward, loss, backward, optimizer."""
    optimizer = OPTIMIZERS[kind](parameters, lr=1e-3)

    def run() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return run


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
    """Channels last against channels first, frozen: where freeze.NARROW lies."""
    lines = []
    for width in (8, 16, 32, 48, 64):
        single = pl.convert(resnet18(width=width), Single())
        contestants: Contestants = {}
        for name, limit in (("channels last", float("inf")), ("channels first", 0)):
            freeze.NARROW = limit
            contestants[f"{name}, width {width}"] = partial(single.freeze(), torch.randn(32, 3, 32, 32))
        lines.append(line(*contestants, rounds(contestants, number, 1)))
    return lines


PARTS = {"eval": inference, "train": training, "stacked": stacked, "order": order}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "packed_speed.json")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.busy else 2)
    record = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    for part in options.only:
        torch.manual_seed(0)
        lines = PARTS[part](options.rounds)
        for found in lines:
            print(part, *found.values(), flush=True)
        busy = " --busy" * options.busy
        record[part + busy] = {
            "command": f"python benchmarks/packed_speed.py --only {part} --rounds {options.rounds}{busy}",
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
            "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
            "lines": lines,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
