"""Ensemble Model Patching on UCI regression: Tables 12 and 13 of its paper.

    PLURIBUS_DATA=... python benchmarks/patching_uci.py [SET ...] [--only deep] [--epochs N] [--draws N]

One hidden layer of 50 (protein: 100), ReLU, BatchNorm or dropout after the input and after the hidden
layer, only norms patched, their scales starting at 0.2; Adam as it comes, weight decay 0.01, batches of
100, the published 90/10 splits. The explicit ensemble has neither norms nor dropout. Errors are in the
units of the data, the log predictive density is that of a mixture of Gaussians of precision 0.1 around
every draw, averaged over targets: at most −2.0702.

All splits of a set train at once: their networks are blocks of one module, whose samples are one of each
split. A batch norm sees the values of each split as channels of its own; EMP draws for all blocks together,
ECMP and dropout for each by itself. The five members of the explicit ensemble are blocks too, which makes
them separate trainings on the same batches.
"""

import argparse
import json
import math
import statistics
import time
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

import pluribus as pl
from pluribus.data import Task, uci
from pluribus.methods import ECMP, EMP, MCDropout, Single
from pluribus.metrics import log_predictive_density, rmse

RESULT = Path(__file__).parent / "results" / "patching_uci.json"
SETS = ("boston", "concrete", "energy", "wine_red", "yacht")
OPTIONS, PRECISION, RATE, DECAY, BATCH = 5, 0.1, 0.005, 0.01, 100
HIDDEN = {"protein": 100}
PAPER = {
    "boston": {"ecmp": (3.48, -2.65), "emp": (3.56, -2.70), "dropout": (3.97, -2.92), "deep": (4.29, -2.81)},
    "concrete": {
        "ecmp": (5.61, -3.46),
        "emp": (5.64, -3.59),
        "dropout": (7.06, -4.60),
        "deep": (8.81, -5.09),
    },
    "energy": {"ecmp": (1.35, -2.19), "emp": (1.24, -2.15), "dropout": (2.63, -2.42), "deep": (3.40, -2.58)},
    "kin8nm": {"ecmp": (0.08, -2.07), "emp": (0.08, -2.07), "dropout": (0.08, -2.07), "deep": (0.08, -2.07)},
    "naval": {"ecmp": (0.00, -2.07), "emp": (0.00, -2.07), "dropout": (0.01, -2.07), "deep": (0.01, -2.07)},
    "power": {"ecmp": (4.24, -2.95), "emp": (4.29, -2.99), "dropout": (4.07, -2.90), "deep": (4.04, -2.87)},
    "protein": {"ecmp": (1.95, -2.26), "emp": (2.00, -2.27), "dropout": (2.01, -2.27), "deep": (2.24, -2.33)},
    "wine_red": {
        "ecmp": (0.60, -2.09),
        "emp": (0.62, -2.09),
        "dropout": (0.63, -2.09),
        "deep": (0.88, -2.14),
    },
    "yacht": {
        "ecmp": (1.59, -2.25),
        "emp": (1.60, -2.22),
        "dropout": (12.90, -10.79),
        "deep": (29.48, -5.24),
    },
}
"""RMSE and LPD as printed in the paper."""


class Blocks(nn.Module):
    """A linear layer for each split, `[batch, splits, inputs]` to `[batch, splits, outputs]`."""

    def __init__(self, splits: int, inputs: int, outputs: int) -> None:
        super().__init__()
        layers = [nn.Linear(inputs, outputs) for _ in range(splits)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias.unsqueeze(1), x.transpose(0, 1), self.weight).transpose(0, 1)


class Norms(nn.Module):
    """A batch norm for each split, over its own values."""

    def __init__(self, splits: int, features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(splits * features)
        nn.init.constant_(self.norm.weight, 0.2)

    def forward(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x.flatten(1))
        return normed.view_as(x)


def network(kind: str, splits: int, inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """The networks of all splits: `[batch, splits, inputs]` to `[batch, splits, outputs]`."""

    def extra(features: int) -> nn.Module:
        if kind == "deep":
            return nn.Identity()
        return nn.Dropout(RATE) if kind == "dropout" else Norms(splits, features)

    first, last = Blocks(splits, inputs, hidden), Blocks(splits, hidden, outputs)
    return nn.Sequential(extra(inputs), first, nn.ReLU(), extra(hidden), last)


def methods(draws: int) -> dict[str, pl.Method]:
    """Weight decay is the optimizer's, for all methods alike."""
    patches = {"options": OPTIONS, "where": "norm", "draws": draws, "start": "fresh", "decay": 0.0}
    return {
        "ecmp": ECMP(**patches),
        "emp": EMP(**patches),
        "dropout": MCDropout(draws=draws),
        "deep": Single(),
    }


def summed_error(outputs: Tensor, y: Tensor) -> Tensor:
    """The squared error of every split, summed: each trains as it would alone."""
    return (outputs - y).square().mean((0, 2)).sum()


def trained(kind: str, method: pl.Method, x: Tensor, y: Tensor, hidden: int, epochs: int) -> pl.Ensemble:
    """One ensemble of all splits, from `[splits, samples, ...]`."""
    torch.manual_seed(0)
    (splits, samples), copies = x.shape[:2], OPTIONS if kind == "deep" else 1
    build = partial(
        network, kind, copies * splits, x.shape[2], hidden, y.shape[2]
    )  # fresh members are built anew
    ensemble = pl.convert(
        build, method, pl.Point(), example=x[:, :2].transpose(0, 1).repeat(1, copies, 1)
    ).train()
    optimizer = torch.optim.Adam(ensemble.parameter_groups(1e-3, DECAY), fused=True)
    rows = torch.arange(splits)
    for _ in range(epochs):
        order = torch.rand(splits, samples).argsort(1)
        for part in order.split(BATCH, 1):
            if part.shape[1] > 1:  # a batch norm cannot learn from one sample
                batch = rows, part.T
                inputs, targets = (values[batch].repeat(1, copies, 1) for values in (x, y))
                loss = ensemble.loss(inputs, targets, criterion=summed_error)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return ensemble.eval()


def scores(ensemble: pl.Ensemble, tasks: list[Task]) -> dict[str, list[float]]:
    """RMSE and LPD of every split."""
    x = torch.stack([task.test.x for task in tasks], 1)
    if isinstance(ensemble.method, Single):
        outputs = ensemble.predict(x.repeat(1, OPTIONS, 1)).members[0]
        outputs = outputs.unflatten(1, (OPTIONS, len(tasks))).transpose(0, 1)
    else:
        outputs = ensemble.predict(x).members
    found: dict[str, list[float]] = {"rmse": [], "lpd": []}
    for split, task in enumerate(tasks):
        draws = task.target_scaling.invert(outputs[:, :, split])
        weights = torch.full((len(draws),), 1 / len(draws))
        prediction = pl.Gaussian(PRECISION).prediction(draws, weights)
        target = task.target_scaling.invert(task.test.y)
        found["rmse"].append(rmse(prediction, target))
        found["lpd"].append(log_predictive_density(prediction, target))
    return found


def shown(values: list[float]) -> str:
    """`2.218±0.099`."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.3f}±{error:.3f}"


def main() -> None:
    """Runs the sets named and keeps each as soon as it is done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=SETS)
    parser.add_argument("--epochs", type=int, default=4000)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=methods(1), default=list(methods(1)))
    given = parser.parse_args()
    result = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {"sets": {}}
    result["command"] = "python benchmarks/patching_uci.py"
    for name in given.sets:
        tasks = [uci(name, split=split, validation=0) for split in range(given.splits)]
        x, y = (torch.stack([getattr(task.train, part) for task in tasks]) for part in "xy")
        y = y.view(*y.shape[:2], -1)
        # Kinds that are not run again keep the numbers that they have.
        found = result["sets"].get(name, {})
        found |= {"splits": given.splits, "epochs": given.epochs, "draws": given.draws}
        for kind in given.only:
            method = methods(given.draws)[kind]
            start = time.perf_counter()
            ensemble = trained(kind, method, x, y, HIDDEN.get(name, 50), given.epochs)
            measured = {metric: shown(values) for metric, values in scores(ensemble, tasks).items()}
            paper = dict(zip(("rmse", "lpd"), PAPER.get(name, {}).get(kind, ()), strict=False))
            found[kind] = {"here": measured, "paper": paper, "seconds": round(time.perf_counter() - start)}
            print(name, kind, found[kind], flush=True)
        result["sets"][name] = found
        RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
