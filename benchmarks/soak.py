"""Soak: several threads predict for minutes; memory must stay flat and results must not change.

    python benchmarks/soak.py [--minutes 10] [--threads 8] [--result benchmarks/results/soak.json]

One ensemble of each kind of engine serves all threads, with batches of changing sizes, and summaries. Memory
is read after a tenth of the time, when all caches are filled, and at the end. It may grow by `GROWTH` bytes.
"""

import argparse
import gc
import json
import random
import resource
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import pluribus as pl
from pluribus.methods import SAE, BatchEnsemble, DeepEnsembles, LayerEnsembles, Masksembles, MCDropout

SIZES = (1, 3, 16, 33, 64)
GROWTH = 16 * 2**20
"""Bytes by which the memory of the process may grow: pools of the allocator, no leak of a tensor per call."""
X = torch.randn(max(SIZES), 8, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    """Return a small network with norms and blocks."""
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU()) for _ in range(3)]
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), *blocks, nn.Linear(32, 4))


def ensembles() -> dict[str, Any]:
    """Return ensembles that run in different ways, and one that is frozen."""
    methods = [
        DeepEnsembles(members=3),
        DeepEnsembles(members=9),
        BatchEnsemble(members=3),
        MCDropout(draws=3),
    ]
    methods += [LayerEnsembles(options=2, draws=6), Masksembles(members=3), SAE()]
    found: dict[str, Any] = {}
    for method in methods:
        ensemble = pl.convert(network(), method, example=X[:2]).eval()
        found[str(method)] = ensemble
        found[f"frozen {method}"] = ensemble.freeze()
    return found


def resident() -> int:
    """Return the bytes of memory that the process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * resource.getpagesize()


class Soak:
    """Threads that predict until they are told to stop.

    Args:
        served: The ensembles.
    """

    def __init__(self, served: dict[str, Any]) -> None:
        self.served, self.stopping = served, threading.Event()
        self.expected = {
            (name, size): one.predict(X[:size]).probabilities
            for name, one in served.items()
            for size in SIZES
        }
        self.calls, self.wrong = 0, list[str]()
        self.lock = threading.Lock()

    def work(self, seed: int) -> None:
        """Predict with a random ensemble and batch again and again."""
        rng = random.Random(seed)
        while not self.stopping.is_set():
            name, size = rng.choice(list(self.served)), rng.choice(SIZES)
            keep = rng.choice(("members", "summary"))
            try:
                found = self.served[name].predict(X[:size], keep=keep).probabilities
                problem = "" if torch.equal(found, self.expected[name, size]) else "another result"
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            with self.lock:
                self.calls += 1
                if problem:
                    self.wrong.append(f"{name} on {size}: {problem}")


def main() -> None:
    """Run the soak and write what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--result", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    soak = Soak(ensembles())
    threads = [threading.Thread(target=soak.work, args=(seed,)) for seed in range(options.threads)]
    for thread in threads:
        thread.start()
    samples = []
    for _ in range(10):
        time.sleep(6 * options.minutes)
        samples.append(resident())
        print(f"{soak.calls} calls, {samples[-1] / 2**20:.1f} MiB", flush=True)
    soak.stopping.set()
    for thread in threads:
        thread.join()
    growth = samples[-1] - samples[0]
    found = {
        "minutes": options.minutes,
        "threads": options.threads,
        "calls": soak.calls,
        "wrong": soak.wrong[:20],
        "mebibytes": [round(one / 2**20, 1) for one in samples],
        "growth_mebibytes": round(growth / 2**20, 2),
    }
    print(json.dumps(found))
    if options.result:
        options.result.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if soak.wrong or growth > GROWTH:
        raise SystemExit("memory grew, or results changed")


if __name__ == "__main__":
    main()
