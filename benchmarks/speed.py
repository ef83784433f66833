"""How long predictions take, for every method on five networks, beside the plain network in the same engine.

    python benchmarks/speed.py [--networks mlp cnn] [--methods PackedEnsembles] [--engines frozen inductor]
                               [--batches 1] [--seconds 10] [--turns 5] [--again] [--page]
    python benchmarks/speed.py --predict
    python benchmarks/speed.py --large

Times are those of the processor, with one thread, so that other work on the machine does not count. An
ensemble and the plain network run in turn, and a number is the median of their ratios. `bound` is the ratio
of their multiply-adds: what a perfect program would reach. `--page` writes the tables and figures of
docs/speed.md.

`--predict` measures how much longer `frozen.predict(x)` takes than `frozen(x)` on one sample of the MLP,
`--large` the seconds of `convert` and `freeze` for networks of Hugging Face (random weights, no download).

The engine `inductor` is `torch.compile`, as `frozen.with_engine("inductor")` runs it. What an engine refuses
(inductor: more than 1,000 operators) is written with the reason. Graphs with more than 200 MiB of weights are
left out of other engines: they would hold the weights twice or three times, and take minutes to compile.
`torch_uncertainty` measures the same methods of that library on ResNet-18, beside its own plain network,
where it is installed.

Every result is written as soon as it is there. Run again, it continues.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from speed_page import ENGINES, write_page
from speed_peers import NETWORK, is_installed, peer_networks
from torch import Tensor, nn

import pluribus as pl
from pluribus.backbones import cnn, mlp, resnet18, vit, wide_resnet
from pluribus.methods import (
    ECMP,
    EMP,
    MIMMO,
    MIMO,
    SAE,
    SWAG,
    VNN,
    BatchEnsemble,
    BayesByBackprop,
    DeepEnsembles,
    DeepSubEnsembles,
    DropConnect,
    EarlyExit,
    Hypermodel,
    Laplace,
    LayerEnsembles,
    LoRAEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
)

RESULTS = Path(__file__).parent / "results" / "speed.json"
MEMBERS, DRAWS, RATE = 4, 16, 0.1
PEER = "torch_uncertainty"
METHODS = [
    PackedEnsembles(members=MEMBERS, alpha=2.0),
    BatchEnsemble(members=MEMBERS),
    Masksembles(members=MEMBERS),
    MIMO(),
    SAE(),
    EarlyExit(),
    DeepEnsembles(members=MEMBERS),
    DeepSubEnsembles(members=MEMBERS),
    LoRAEnsembles(members=MEMBERS),
    MCDropout(rate=RATE, draws=DRAWS),
    EMP(draws=DRAWS),
    LayerEnsembles(draws=DRAWS),
    Laplace(draws=DRAWS),
    SWAG(members=MEMBERS),
    MIMMO(),
    DropConnect(draws=DRAWS),
    ECMP(draws=DRAWS),
    BayesByBackprop(draws=DRAWS),
    VNN(draws=DRAWS),
    Hypermodel(draws=DRAWS),
]
Network = tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]
NETWORKS: dict[str, Network] = {
    "mlp": (lambda: mlp(64, 10, hidden=(256, 256)), (64,), (1, 256)),
    "cnn": (lambda: cnn(classes=10, in_channels=1), (1, 28, 28), (1, 32)),
    "vit": (lambda: vit(), (3, 32, 32), (1, 32)),
    "resnet18": (lambda: resnet18(), (3, 32, 32), (1, 32)),
    "wide_resnet_16_4": (lambda: wide_resnet(16, 4), (3, 32, 32), (1, 32)),
}
"""By name, a builder, the shape of a sample, and the batch sizes."""
CONVERTED = ("inductor", "onnxruntime", "openvino")
MOST_CONVERTED_BYTES = 200 * 2**20
MOVE = 1e-3
MOST_ROUNDS = 40
SAMPLE = 2e-3
"""Seconds of one timing at least; shorter ones are repeated, because the clock has its own cost."""

Run = Callable[[Tensor], object]


def prepared(network: str, method: pl.Method) -> tuple[pl.Ensemble, float]:
    """Return an ensemble that can predict, and the seconds of its conversion."""
    build, shape, _ = NETWORKS[network]
    torch.manual_seed(0)
    module, x = build(), torch.randn(4, *shape)
    start = time.process_time()
    ensemble = pl.convert(module, method, example=x[:2])
    taken = time.process_time() - start
    for _ in range(3):
        _move(ensemble)
        # SWAG keeps snapshots of its weights; the others do nothing here.
        ensemble.after_step(1.0)
    ensemble.finish([x])
    return ensemble.eval(), taken


@torch.no_grad()
def _move(ensemble: pl.Ensemble) -> None:
    """Change all trained weights a little.

    LoRA's members start alike, and SWAG's are alike without steps. OpenVINO finds constants with equal
    numbers and computes such members once, which trained ones never are.
    """
    for parameter in ensemble.parameters():
        if parameter.requires_grad:
            parameter.add_(torch.randn_like(parameter), alpha=MOVE)


def engine(name: str, ensemble: nn.Module, frozen: Any) -> Run:
    """Return a function that runs all members in an engine."""
    if name == "unfrozen":
        return ensemble
    return frozen if name == "frozen" else frozen.with_engine(name)


def seconds(run: Run, x: Tensor, repeats: int) -> float:
    start = time.process_time()
    for _ in range(repeats):
        run(x)
    return (time.process_time() - start) / repeats


def ratio(run: Run, plain: Run, x: Tensor, most: float, least: int) -> dict[str, Any]:
    """Return the median ratio of two functions that run in turn, its quartiles, and their times.

    Args:
        run: The function.
        plain: What it is compared with.
        x: Its input.
        most: Seconds.
        least: Turns, even if they take more seconds.
    """
    repeats = {}
    for one in (run, plain):
        seconds(one, x, 2)
        repeats[one] = max(1, round(SAMPLE / max(seconds(one, x, 1), 1e-7)))
    times: dict[Run, list[float]] = {run: [], plain: []}
    began = time.process_time()
    while len(times[run]) < MOST_ROUNDS:
        if len(times[run]) >= least and time.process_time() - began > most:
            break
        order = (run, plain) if len(times[run]) % 2 else (plain, run)
        for one in order:
            times[one].append(seconds(one, x, repeats[one]))
    ratios = [a / b for a, b in zip(times[run], times[plain], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "ratio": round(middle, 3),
        "quartiles": [round(low, 3), round(high, 3)],
        "milliseconds": round(statistics.median(times[run]) * 1e3, 4),
        "plain_milliseconds": round(statistics.median(times[plain]) * 1e3, 4),
    }


class Bench:
    """One network: the plain one in every engine, made once, and ensembles of it.

    Args:
        network: A name of `NETWORKS`.
        engines: Those to measure.
        most: Seconds of one measurement.
        turns: The least number of turns.
        batches: Sizes of batch to measure, of those that the network has.
    """

    def __init__(self, network: str, engines: list[str], most: float, turns: int, batches: list[int]) -> None:
        self.network, self.engines, self.most, self.turns = network, engines, most, turns
        build, self.shape, sizes = NETWORKS[network]
        self.batches = tuple(size for size in sizes if size in batches)
        torch.manual_seed(0)
        module = build().eval()
        single = pl.convert(module, "single", example=torch.randn(2, *self.shape)).eval()
        frozen = single.freeze()
        # Unfrozen, the plain network is the user's own module.
        self.plain = {name: engine(name, module, frozen) for name in engines if name != PEER}
        self.peers: dict[str, Callable[[], nn.Module]] = {}
        if PEER in engines and network == NETWORK and is_installed():
            self.peers = peer_networks(MEMBERS, DRAWS, RATE)
            self.plain[PEER] = self.peers["Single"]().eval()
        self.work = pl.cost(module, torch.randn(1, *self.shape)).multiply_adds

    def measure(self, method: pl.Method, known: Mapping[str, Any], keep: Callable[[str, Any], None]) -> None:
        """Measure one method in all engines and batch sizes that are not known yet."""
        kind = type(method).__name__
        label = f"{self.network}/{kind}"
        names = [name for name in self.engines if name != PEER or kind in self.peers]
        cells = [(name, batch) for name in names for batch in self.batches]
        missing = [(name, batch) for name, batch in cells if f"{label}/{name}/{batch}" not in known]
        if not missing:
            return
        ensemble, converting = prepared(self.network, method)
        start = time.process_time()
        frozen = ensemble.freeze()
        freezing = time.process_time() - start
        x = torch.randn(1, *self.shape)
        start = time.process_time()
        frozen(x)
        first = time.process_time() - start
        measured = pl.cost(frozen, x)
        common = {
            "method": str(method),
            "members": len(ensemble.weights),
            "bound": round(measured.multiply_adds / self.work, 3),
            "weight_bytes": measured.weight_bytes,
            "peak_activation_bytes": measured.peak_activation_bytes,
            "convert_seconds": round(converting, 3),
            "freeze_seconds": round(freezing, 3),
            "first_call_seconds": round(first, 4),
            "looped": not frozen.kinds,
        }
        for name in dict.fromkeys(name for name, _ in missing):
            if name in CONVERTED and measured.weight_bytes > MOST_CONVERTED_BYTES:
                for batch in self.batches:
                    keep(f"{label}/{name}/{batch}", common | {"left_out": "more than 200 MiB of weights"})
                continue
            try:
                run = self.peers[kind]().eval() if name == PEER else engine(name, ensemble, frozen)
            except pl.PluribusError as error:
                for batch in self.batches:
                    keep(f"{label}/{name}/{batch}", common | {"refused": str(error)[:300]})
                continue
            for batch in (batch for other, batch in missing if other == name):
                inputs = torch.randn(batch, *self.shape)
                with torch.no_grad():
                    found = ratio(run, self.plain[name], inputs, self.most, self.turns)
                keep(f"{label}/{name}/{batch}", common | found)


def added_by_predict(method: pl.Method, rounds: int = 40, calls: int = 200) -> dict[str, Any]:
    """Return the milliseconds that `predict` adds to a call of a frozen MLP with one sample."""
    frozen = prepared("mlp", method)[0].freeze()
    x = torch.randn(1, *NETWORKS["mlp"][1])
    called, added = [], []
    for run in (frozen, frozen.predict):
        seconds(run, x, calls)
    for _ in range(rounds):
        called.append(seconds(frozen, x, calls) * 1e3)
        added.append(seconds(frozen.predict, x, calls) * 1e3 - called[-1])
    low, middle, high = statistics.quantiles(added, n=4)
    return {
        "milliseconds": round(statistics.median(called), 4),
        "added_milliseconds": round(middle, 4),
        "quartiles": [round(low, 4), round(high, 4)],
    }


def large_networks() -> dict[str, tuple[Callable[[], nn.Module], pl.Method, Any]]:
    """Return by name a builder of a network of Hugging Face, a method and an example."""
    from transformers import BertConfig, BertForSequenceClassification, ViTConfig, ViTForImageClassification

    tokens = {
        "input_ids": torch.ones(2, 32, dtype=torch.long),
        "attention_mask": torch.ones(2, 32, dtype=torch.long),
    }
    return {
        "ViT-base": (
            lambda: ViTForImageClassification(ViTConfig(num_labels=10)),
            Masksembles(members=MEMBERS),
            torch.randn(2, 3, 224, 224),
        ),
        "BERT-base": (
            lambda: BertForSequenceClassification(BertConfig(num_labels=3)),
            PackedEnsembles(members=MEMBERS, alpha=2.0),
            tokens,
        ),
    }


def preparation(build: Callable[[], nn.Module], method: pl.Method, example: Any) -> dict[str, Any]:
    """Return the seconds of `convert` and `freeze` for one large network."""
    torch.manual_seed(0)
    module = build().eval()
    start = time.process_time()
    ensemble = pl.convert(module, method, example=example).eval()
    converted = time.process_time()
    ensemble.freeze()
    return {
        "method": str(method),
        "convert_seconds": round(converted - start, 2),
        "freeze_seconds": round(time.process_time() - converted, 2),
    }


def write_tables(cells: Mapping[str, Any]) -> None:
    """Write the tables and figures of docs/speed.md."""
    batches = {name: sizes for name, (_, _, sizes) in NETWORKS.items()}
    write_page(cells, batches, [type(method).__name__ for method in METHODS])


def main() -> None:
    parser = argparse.ArgumentParser()
    kinds = [type(method).__name__ for method in METHODS]
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32, 256])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=5, help="measure as often at least, two or more")
    parser.add_argument("--again", action="store_true", help="measure again what is known")
    parser.add_argument("--page", action="store_true", help="write the tables of docs/speed.md alone")
    parser.add_argument("--predict", action="store_true", help="measure what `predict` adds, alone")
    parser.add_argument("--large", action="store_true", help="measure large networks, alone")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    record = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {"cells": {}}
    if options.page:
        write_tables(record["cells"])
        return
    versions = f"torch {torch.__version__}, pluribus {pl.__version__}"
    record["machine"] = f"{platform.machine()}, 1 thread, {versions}"

    measured: dict[str, Any] = {}

    def write() -> None:
        # Two processes may measure different cells; neither removes those of the other.
        if options.out.exists():
            record["cells"] = json.loads(options.out.read_text(encoding="utf-8"))["cells"] | measured
        unfinished = options.out.with_suffix(".part")
        unfinished.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        unfinished.replace(options.out)

    def keep(key: str, cell: Any) -> None:
        measured[key] = cell
        write()
        print(key, cell.get("ratio", cell.get("refused", "left out")), "bound", cell["bound"], flush=True)

    if options.predict or options.large:
        for method in METHODS if options.predict else ():
            if type(method).__name__ in options.methods:
                found = record.setdefault("predict", {})
                found[type(method).__name__] = added_by_predict(method)
                write()
                print(type(method).__name__, found[type(method).__name__], flush=True)
        for name, parts in large_networks().items() if options.large else ():
            found = record.setdefault("large", {})
            found[name] = preparation(*parts)
            write()
            print(name, found[name], flush=True)
        return

    for network in options.networks:
        bench = Bench(network, options.engines, options.seconds, options.turns, options.batches)
        for method in METHODS:
            if type(method).__name__ not in options.methods:
                continue
            try:
                bench.measure(method, {} if options.again else record["cells"], keep)
            # A network that a method refuses is told, and the others are measured.
            except pl.PluribusError as error:
                print(network, type(method).__name__, f"refused: {error}", flush=True)


if __name__ == "__main__":
    main()
