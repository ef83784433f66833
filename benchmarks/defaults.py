"""Measure candidates for a method's default settings on validation data: digits and small Fashion-MNIST.

    python benchmarks/defaults.py sae
    python benchmarks/defaults.py patching --seeds 3

A small CNN on 300 digits (500 steps) and on 2000 images of Fashion-MNIST at 14 × 14 pixels (640 steps). Test
data is not read: defaults are chosen on validation data alone. One line per run goes to
`benchmarks/results/defaults_<study>.jsonl`; runs that are there are not repeated.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import pluribus as pl
from pluribus import data
from pluribus.backbones import cnn
from pluribus.data.task import Split, Task
from pluribus.mechanisms.graph.cost import cost
from pluribus.methods import ECMP, EMP, SAE, Single
from pluribus.metrics import METRICS
from pluribus.training import Training, train

RESULTS = Path(__file__).parent / "results"


def digits(seed: int) -> tuple[Task, Training]:
    """Return 300 digits to train on, and 500 steps."""
    return data.digits(train=300, validation=400), Training(epochs=100, batch=64, seed=seed)


def fashion(seed: int) -> tuple[Task, Training]:
    """Return 2000 images of 14 × 14 pixels, and 640 steps."""
    task = data.load_task("fashion_mnist", train=2000, validation=2000)
    halved = {name: _halved(getattr(task, name)) for name in ("train", "validation", "test")}
    return replace(task, **halved, shifted={}, ood={}), Training(epochs=20, batch=64, seed=seed)


def _halved(split: Split) -> Split:
    return Split(nn.functional.avg_pool2d(split.x, 2), split.y)


TASKS = {"digits": digits, "fashion": fashion}


def candidates(study: str) -> Iterator[tuple[str, pl.Method]]:
    """Yield the settings to compare, by a short name."""
    yield "single", Single()
    if study == "sae":
        for alpha in (0.0, 0.01, 0.1):
            yield f"alpha {alpha}", SAE(alpha=(alpha, alpha))
        first = SAE(
            alpha=(0.0, 0.0), temperature=(1.0, 0.01), input_repetition=(0.0, 0.0), draw_from="logits"
        )
        yield "version 1", first
        yield "alpha 0.0, draws from logits", replace(SAE(), alpha=(0.0, 0.0), draw_from="logits")
    if study == "patching":
        for method in (EMP, ECMP):
            for distance in (0.01, 0.1, 0.3, 0.5, 1.0):
                yield f"{method.kind()} {distance}", method(perturbation=distance, draws=20)
            yield f"{method.kind()} fresh", method(start="fresh", draws=20)


def measure(method: pl.Method, task: Task, training: Training) -> dict[str, Any]:
    """Train once and return the validation scores."""
    torch.manual_seed(training.seed)
    x, y = task.validation.x, task.validation.y
    model = cnn()
    ensemble = pl.convert(model, method, example=task.train.x[:2], seed=training.seed)
    train(ensemble, task, training, show=False)
    prediction = ensemble.predict(x, chunk=1000)
    scores = {name: METRICS[name](prediction, y) for name in ("accuracy", "nll", "ece")}
    scores["mutual_information"] = prediction.mutual_information.mean().item()
    scores["members"] = len(ensemble.weights)
    scores["weights"] = [round(weight, 4) for weight in ensemble.weights.tolist()][:16]
    one = cost(model, x[:1]).multiply_adds
    scores["multiply_adds_ratio"] = cost(ensemble.freeze(), x[:1]).multiply_adds / one
    return scores


def main() -> None:
    """Run what is missing, and print a table of means."""
    parser = argparse.ArgumentParser()
    parser.add_argument("study")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    arguments = parser.parse_args()
    path = RESULTS / f"defaults_{arguments.study}.jsonl"
    runs = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    for seed in range(arguments.seeds):
        for name in arguments.tasks:
            task, training = TASKS[name](seed)
            for label, method in candidates(arguments.study):
                known = {"task": name, "label": label, "seed": seed}
                if any(known.items() <= run.items() for run in runs):
                    continue
                run = known | measure(method, task, training)
                runs.append(run)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(run) + "\n")
    for name in arguments.tasks:
        for label, _ in candidates(arguments.study):
            found = [run for run in runs if run["task"] == name and run["label"] == label]
            means = {key: sum(run[key] for run in found) / len(found) for key in ("accuracy", "nll", "ece")}
            shown = "  ".join(f"{key} {value:.3f}" for key, value in means.items())
            print(f"{name:8} {label:32} {shown}  {len(found)} runs")


if __name__ == "__main__":
    main()
