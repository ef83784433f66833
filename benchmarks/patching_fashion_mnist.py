"""Ensemble Model Patching beside its baselines on Fashion-MNIST: Tables 4, 5 and 9 to 11 of its paper, small.

    PLURIBUS_DATA=... python benchmarks/patching_fashion_mnist.py [--train 4000] [--epochs 10] [--seeds 3]

A CNN of three convolutions, each with BatchNorm; norms and output are patched, K = 5, S = 100. Dropout is
put before every norm, rate 0.005, as in the paper. Calibration errors have the paper's 20 bins; corruption
errors are multiples of the single network's with the same seed. The errors of fewer draws are read from the
same run. Chosen once, before any result was seen; the last weights are kept. Ten epochs are short:
`--epochs 60` was chosen after them, before any of its own results, to see what longer training changes.
"""

import argparse
import json
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

import pluribus as pl
from pluribus.comparison import compare
from pluribus.comparison.record import Record, read
from pluribus.data import Task, load_task
from pluribus.methods import ECMP, EMP, DeepEnsembles, MCDropout, Single
from pluribus.metrics import METRICS
from pluribus.metrics.shift import ShiftErrors, mean_corruption_error
from pluribus.report.groups import group_records
from pluribus.report.page import write_page
from pluribus.report.tables import make_table
from pluribus.report.terminal import print_table
from pluribus.training import Training

OUT = Path("pluribus_runs/patching_fashion_mnist")
RESULT = Path(__file__).parent / "results" / "patching_fashion_mnist.json"
NETWORK = "CNN with BatchNorm"
DRAWS, RATE = 100, 0.005
COUNTS = (1, 5, 20, 100)
METHODS = [Single(), EMP(draws=DRAWS), ECMP(draws=DRAWS), DeepEnsembles(5)]
KINDS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
METRICS_SHOWN = ("accuracy", "nll", "ece_20", "mce_20")


def build(dropout: float = 0.0) -> nn.Sequential:
    """Three stages of convolution, norm and ReLU, pooled twice; dropout before the norms if asked."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 64)):
        drop = [nn.Dropout(dropout)] if dropout else []
        norm = [nn.Conv2d(before, after, 3, padding=1, bias=False), *drop, nn.BatchNorm2d(after), nn.ReLU()]
        layers += [*norm, nn.MaxPool2d(2)] if after < 64 else norm
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def by_draws(record: Record, task: Task, out: Path) -> dict[str, list[float]]:
    """Accuracy and ECE of the first S draws, S in `COUNTS`."""
    kind = record.method["kind"]
    model = build(RATE) if kind == "mc_dropout" else build()
    folder = out / "runs" / f"{kind}-{record.seed}-{record.key}" / "ensemble"
    ensemble = pl.load(folder, model, example=task.train.x[:2])
    prediction = ensemble.predict(task.test.x, chunk=512)
    nested = [prediction.weighted(ensemble.nested_weights(draws)) for draws in COUNTS]
    return {name: [METRICS[name](one, task.test.y) for one in nested] for name in ("accuracy", "ece_20")}


def shift_errors(record: Record) -> ShiftErrors:
    """Top-1 errors, clean and corrupted."""
    corrupted = {
        kind: [1 - record.shifted[f"{kind}/{severity}"]["accuracy"] for severity in range(1, 6)]
        for kind in KINDS
    }
    return ShiftErrors(1 - record.metrics["accuracy"], corrupted)


def shown(values: list[float]) -> str:
    """`0.852±0.001`: the mean over seeds and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f}±{error:.3f}"


def summary(records: list[Record], vanilla: list[Record], task: Task, out: Path) -> dict[str, object]:
    """Return the scores of one method over its seeds."""
    found: dict[str, object] = {name: shown([one.metrics[name] for one in records]) for name in METRICS_SHOWN}
    pairs = zip(records, vanilla, strict=True)
    found["mCE"] = shown([mean_corruption_error(shift_errors(a), shift_errors(b)) for a, b in pairs])
    found |= {name: records[0].cost[name] for name in ("parameters_ratio", "multiply_adds_ratio")}
    if "draws" in records[0].method:
        curves = [by_draws(one, task, out) for one in records]
        for name in curves[0]:
            columns = zip(*(curve[name] for curve in curves), strict=True)
            found[f"{name} by draws"] = dict(
                zip(map(str, COUNTS), map(shown, map(list, columns)), strict=True)
            )
    return found


def main() -> None:
    """Runs, or goes on with, the comparison, writes its report, and keeps its numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=4000)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--corrupted", type=int, default=300, help="how many test images are corrupted")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    task = load_task("fashion_mnist", train=given.train, validation=200, test=given.test)
    few = {"images": task.shifted.images[: given.corrupted], "y": task.shifted.y[: given.corrupted]}
    task = replace(task, shifted=replace(task.shifted, kinds=KINDS, **few), ood={})
    training = Training(epochs=given.epochs, batch=64, lr=3e-3, keep="last")
    out = OUT / f"{given.epochs}_epochs"
    settings = {
        "out": out,
        "training": training,
        "network": NETWORK,
        "seeds": given.seeds,
        "workers": given.workers,
    }
    records = compare(build, task, METHODS, **settings)
    records += compare(partial(build, RATE), task, [MCDropout(draws=DRAWS)], **settings)
    (group,) = group_records(read([out], outcomes=True))
    print_table(make_table(group), group.title)
    write_page(out, [group])
    kinds = dict.fromkeys(one.method["kind"] for one in records)
    by_kind = {kind: [one for one in records if one.method["kind"] == kind] for kind in kinds}
    result = {
        "command": f"python benchmarks/patching_fashion_mnist.py --epochs {given.epochs}",
        "settings": vars(given) | {"training": training.to_dict(), "corruptions": KINDS, "draws": DRAWS},
        "means": {kind: summary(runs, by_kind["single"], task, out) for kind, runs in by_kind.items()},
        "versions": records[0].versions,
    }
    kept = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    kept[f"{given.epochs} epochs"] = result
    RESULT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(result["means"], indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
