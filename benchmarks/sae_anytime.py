"""Measure the multiply-adds saved by samples that leave early: a curve over thresholds, on MNIST.

    PLURIBUS_DATA=... python benchmarks/sae_anytime.py [--train 4000] [--epochs 6] [--seed 0]

A narrow VGG with all its exits, trained by `EarlyExit`. For each threshold accuracy, the mean multiply-adds
of a sample and the share of samples that spent each amount; beside it the full run, which averages all exits,
and the network alone. The threshold that spends least without losing accuracy is found on validation data.
"""

import argparse
import json
from functools import partial
from pathlib import Path

import torch

import pluribus as pl
from pluribus.backbones import vgg
from pluribus.comparison.evaluation import versions
from pluribus.data import Split, Task, load_task
from pluribus.ensemble import Ensemble
from pluribus.methods import EarlyExit, Single
from pluribus.training import Training, train

RESULT = Path(__file__).parent / "results" / "sae_anytime.json"
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
CHUNK = 500
Point = dict[str, object]


def accuracy(prediction: pl.Prediction, split: Split) -> float:
    """Share of right answers."""
    return round((prediction.labels == split.y).double().mean().item(), 4)


def point(ensemble: Ensemble, split: Split, threshold: float, full: int) -> Point:
    """One threshold."""
    prediction = ensemble.predict(split.x, chunk=CHUNK, exit_when=threshold)
    amounts, counts = prediction.spent.unique(return_counts=True)
    mean = prediction.spent.double().mean().item()
    return {
        "threshold": threshold,
        "accuracy": accuracy(prediction, split),
        "multiply_adds": round(mean),
        "ratio": round(mean / full, 4),
        "spent": {
            str(int(a)): round(c / len(split), 4)
            for a, c in zip(amounts.tolist(), counts.tolist(), strict=True)
        },
    }


def main() -> None:
    """Trains, runs every threshold on validation and test data, and keeps the curve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=4000)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    task = load_task("mnist", train=given.train, validation=1000, test=given.test, border=2, ood=())
    training = Training(epochs=given.epochs, batch=64, lr=3e-3, keep="last", seed=given.seed)
    build = partial(vgg, 10, 1, planes=(8, 16, 32, 64, 64))
    options = {"example": task.train.x[:2], "seed": given.seed}
    torch.manual_seed(given.seed)
    ensemble, single = (pl.convert(build(), method, **options) for method in (EarlyExit(), Single()))
    for one in (ensemble, single):
        train(one, task, training, show=False)
    x = task.test.x[:1]
    full, alone = (pl.cost(one.freeze(), x).multiply_adds for one in (ensemble, single))
    whole = {part: ensemble.predict(split.x, chunk=CHUNK) for part, split in _parts(task)}
    curves = {part: [point(ensemble, split, t, full) for t in THRESHOLDS] for part, split in _parts(task)}
    least = accuracy(whole["validation"], task.validation)
    kept = [row for row in curves["validation"] if row["accuracy"] >= least]
    taken = min(kept, key=lambda row: row["multiply_adds"])["threshold"] if kept else None
    result = {
        "command": "python benchmarks/sae_anytime.py",
        "settings": vars(given) | {"training": training.to_dict()},
        "network": {
            "multiply_adds": alone,
            "accuracy": accuracy(single.predict(task.test.x, chunk=CHUNK), task.test),
        },
        "full run": {"multiply_adds": full, "accuracy": accuracy(whole["test"], task.test)},
        "exits alone": [_alone(row, task.test) for row in whole["test"].members],
        "curve": curves["test"],
        "chosen on validation data": next((row for row in curves["test"] if row["threshold"] == taken), None),
        "versions": versions(),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def _parts(task: Task) -> tuple[tuple[str, Split], ...]:
    return (("validation", task.validation), ("test", task.test))


def _alone(logits: torch.Tensor, split: Split) -> float:
    """Accuracy of one exit."""
    return round((logits.argmax(1) == split.y).double().mean().item(), 4)


if __name__ == "__main__":
    main()
