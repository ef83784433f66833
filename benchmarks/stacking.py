"""Stacked against looped running of deep ensembles of small networks.

    python benchmarks/stacking.py [--out benchmarks/results/stacking.json]

Each line is the median over repetitions of (time looped / time stacked), both timed in turn in one
process with two threads; above 1 stacking is faster.
"""

import argparse
import copy
import itertools
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import pluribus as pl
from pluribus.mechanisms.running import batched as run
from pluribus.methods import DeepEnsembles

NETWORKS = {"13-50-2": (13, 50, 2, 1), "64-128x2-10": (64, 128, 10, 2), "784-512x3-10": (784, 512, 10, 3)}


def network(inputs: int, width: int, outputs: int, depth: int) -> nn.Module:
    sizes = [inputs, *[width] * depth]
    layers = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def ratio(slow: Callable[[], None], fast: Callable[[], None], repetitions: int) -> float:
    ratios = []
    for _ in range(repetitions):
        times = []
        for function in (slow, fast):
            function()
            start = time.perf_counter()
            for _ in range(3):
                function()
            times.append(time.perf_counter() - start)
        ratios.append(times[0] / times[1])
    return statistics.median(ratios)


def measure(name: str, members: int, batch: int, training: bool, repetitions: int) -> dict[str, object]:
    sizes = NETWORKS[name]
    stacked = pl.convert(network(*sizes), DeepEnsembles(members=members)).train(training)
    looped = copy.deepcopy(stacked)
    looped._caller.cache["stacked"] = "measured looped"
    x, y = torch.randn(batch, sizes[0]), torch.randint(sizes[2], (batch,))

    def step(ensemble: pl.Ensemble) -> None:
        if training:
            ensemble.loss(x, y).backward()
        else:
            with torch.no_grad():
                ensemble(x)

    value = ratio(lambda: step(looped), lambda: step(stacked), repetitions)
    return {
        "network": name,
        "members": members,
        "batch": batch,
        "training": training,
        "speedup": round(value, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "stacking.json")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(2)
    run.STACKED_ROWS, run.STACKED_WORK = 2, float("inf")  # the limits are what this file looks for
    lines = []
    for name in NETWORKS:
        for members in (4, 20):
            for batch in (2, 100, 1000):
                for training in (True, False):
                    lines.append(measure(name, members, batch, training, options.repetitions))
                    print(*lines[-1].values(), flush=True)
    record = {
        "command": "python benchmarks/stacking.py",
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, 2 threads",
        "lines": lines,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
