"""Patches put into a trained network, and trained alone, beside the network trained on.

    PLURIBUS_DATA=... python benchmarks/patching_fine_tuning.py [--epochs 30] [--tuning 10] [--seeds 3]

The CNN of `patching_fashion_mnist.py` is trained on 4000 images of Fashion-MNIST. Then norms and output get
five options, which alone are trained for a few epochs more, starting at several distances from one another;
the yardstick is the network as it was, and trained on for as many epochs. Settings were chosen once, before
any result was seen.
"""

import argparse
import json
from pathlib import Path

import torch
from patching_fashion_mnist import build, shown

import pluribus as pl
from pluribus.data import Task, load_task
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.methods import ECMP, EMP, Single
from pluribus.metrics import METRICS
from pluribus.training import Training, train

RESULT = Path(__file__).parent / "results" / "patching_fine_tuning.json"
DRAWS, PERTURBATIONS = 100, (0.01, 0.1, 0.5)
SHOWN = ("accuracy", "nll", "ece_20")


def methods() -> dict[str, pl.Method]:
    """Return the methods that the trained network is converted with."""
    found: dict[str, pl.Method] = {"single": Single()}
    for method in (EMP, ECMP):
        for far in PERTURBATIONS:
            tuned = method(draws=DRAWS, perturbation=far, freeze_shared=True)
            found[f"{method.kind()}(perturbation={far})"] = tuned
    return found


def measured(ensemble: pl.Ensemble, task: Task) -> dict[str, float]:
    prediction = ensemble.eval().predict(task.test.x, chunk=512)
    found = {name: float(METRICS[name](prediction, task.test.y)) for name in SHOWN}
    return found | {"mutual_information": prediction.mutual_information.mean().item()}


def run(task: Task, seed: int, epochs: int, tuning: int) -> dict[str, dict[str, float]]:
    """All methods on one trained network."""
    settings = {"batch": 64, "seed": seed, "keep": "last"}
    with seeded(seed):
        network = build()
    single = pl.convert(network, Single(), example=task.train.x[:2], seed=seed)
    train(single, task, Training(epochs=epochs, lr=3e-3, **settings), show=False)
    found = {"before": measured(single, task)}
    for name, method in methods().items():
        tuned = pl.convert(single.member(0).train(), method, example=task.train.x[:2], seed=seed)
        train(tuned, task, Training(epochs=tuning, lr=1e-3, **settings), show=False)
        found[name] = measured(tuned, task)
        print(seed, name, found[name], flush=True)
    return found


def main() -> None:
    """Runs all seeds and keeps the means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=4000)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--tuning", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(2)
    task = load_task("fashion_mnist", train=given.train, validation=200, test=given.test)
    runs = [run(task, seed, given.epochs, given.tuning) for seed in range(given.seeds)]
    means = {
        name: {metric: shown([one[name][metric] for one in runs]) for metric in runs[0][name]}
        for name in runs[0]
    }
    result = {
        "command": "python benchmarks/patching_fine_tuning.py",
        "settings": vars(given) | {"draws": DRAWS},
        "means": means,
        "runs": runs,
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
