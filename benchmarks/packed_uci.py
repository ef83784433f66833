"""Packed-Ensembles against deep ensembles on UCI regression: Table 11 of the Packed-Ensembles paper.

    PLURIBUS_DATA=... python benchmarks/packed_uci.py [SET ...]

PE-(2,3,1) against three whole networks: one hidden layer of 200 (protein: 400), ReLU, a Gaussian whose
variance is a softplus, the published 90/10 splits, all of the training part to train on. All splits of a
set are trained at once, as one ensemble of 3 members for each split that see the batches of their own
split; the three whole networks are the case α = M. The mean and variance of the mixture are scored as one
Gaussian.

The paper gives no optimizer, number of epochs or batch; here Adam, 1e-2 down to 0 by a cosine, 40 epochs
of batches of 100, the same for both and for all sets, chosen once and not tuned. Numbers are means ± standard
errors over splits, in the units of the data.
"""

import argparse
import json
import math
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor

import pluribus as pl
from pluribus.backbones import mlp
from pluribus.data import Task, uci
from pluribus.data.tabular import UCI
from pluribus.methods import PackedEnsembles
from pluribus.metrics import gaussian_nll, rmse

RESULT = Path(__file__).parent / "results" / "packed_uci.json"
MEMBERS, EPOCHS, BATCH, RATE = 3, 40, 100, 1e-2
SPLITS = {"protein": 5}
HIDDEN = {"protein": 400}
COLUMNS = ("packed rmse", "deep rmse", "packed nll", "deep nll")
PAPER = {
    "boston": ("2.218±0.099", "2.219±0.098", "2.028±0.034", "2.047±0.028"),
    "concrete": ("5.092±0.225", "5.167±0.234", "2.854±0.028", "2.885±0.032"),
    "energy": ("1.675±0.085", "1.712±0.067", "1.543±0.072", "1.553±0.060"),
    "kin8nm": ("0.058±0.003", "0.058±0.003", "-1.442±0.010", "-1.452±0.010"),
    "naval": ("0.002±0.000", "0.002±0.000", "-4.835±0.066", "-4.833±0.097"),
    "power": ("3.127±0.018", "3.097±0.020", "2.607±0.007", "2.600±0.007"),
    "protein": ("3.476±0.030", "3.412±0.017", "2.472±0.033", "2.442±0.015"),
    "wine_red": ("0.482±0.006", "0.483±0.006", "0.622±0.014", "0.611±0.013"),
    "yacht": ("1.949±0.215", "2.511±0.283", "2.023±0.075", "2.023±0.074"),
}
"""As printed in the paper."""


def trained(tasks: list[Task], alpha: float, hidden: int) -> list[pl.Ensemble]:
    """One ensemble for each split, all of them trained at once."""
    splits, (x, y) = len(tasks), (torch.stack([getattr(t.train, n) for t in tasks]) for n in "xy")
    members = MEMBERS * splits
    method = PackedEnsembles(members, alpha * splits, reduction="sum", shuffle_members=True)
    network = mlp(x.shape[2], tasks[0].outputs, hidden=(hidden,))
    ensemble = pl.convert(network, method, "gaussian", example=x[0, :2]).train()
    optimizer = torch.optim.Adam(ensemble.parameters(), RATE)
    generator, rows = torch.Generator().manual_seed(0), torch.arange(splits).unsqueeze(1)
    steps = EPOCHS * math.ceil(x.shape[1] / BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        order = torch.rand(x.shape[:2], generator=generator).argsort(1)
        for part in order.split(BATCH, 1):
            loss = ensemble.loss(_for_members(x[rows, part]), _for_members(y[rows, part]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    networks = [ensemble.member(i) for i in range(members)]
    starts = range(0, members, MEMBERS)
    return [pl.from_models(networks[i : i + MEMBERS], "gaussian", example=x[0, :2]) for i in starts]


def _for_members(batches: Tensor) -> Tensor:
    """The batches of the splits, `[splits, batch, ...]`, one after the other, each for all of its members."""
    return batches.repeat_interleave(MEMBERS, 0).flatten(0, 1)


def scores(name: str, alpha: float) -> dict[str, list[float]]:
    """RMSE and NLL of every split."""
    tasks = [uci(name, split=split, validation=0) for split in range(SPLITS.get(name, 20))]
    found: dict[str, list[float]] = {"rmse": [], "nll": []}
    for task, ensemble in zip(tasks, trained(tasks, alpha, HIDDEN.get(name, 200)), strict=True):
        prediction = task.in_units(ensemble.predict(task.test.x))
        target = task.target_scaling.invert(task.test.y)
        found["rmse"].append(rmse(prediction, target))
        found["nll"].append(gaussian_nll(prediction, target))
    return found


def shown(values: list[float]) -> str:
    """`2.218±0.099`."""
    return f"{statistics.fmean(values):.3f}±{statistics.stdev(values) / math.sqrt(len(values)):.3f}"


def main() -> None:
    """Runs the sets named, all by default, and keeps each as soon as it is done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=list(UCI))
    result = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {"sets": {}}
    settings = {"members": MEMBERS, "epochs": EPOCHS, "batch": BATCH, "adam": RATE}
    result |= {"command": "python benchmarks/packed_uci.py", "settings": settings}
    for name in parser.parse_args().sets:
        start = time.perf_counter()
        # α = 2 as in the paper; α = M is a deep ensemble.
        packed, deep = (scores(name, alpha) for alpha in (2.0, 3.0))
        gaps = {m: [a - b for a, b in zip(packed[m], deep[m], strict=True)] for m in packed}
        here = [shown(runs[metric]) for metric in ("rmse", "nll") for runs in (packed, deep)]
        result["sets"][name] = {
            "here": dict(zip(COLUMNS, here, strict=True)),
            "paper": dict(zip(COLUMNS, PAPER[name], strict=True)),
            "packed less deep": {metric: shown(values) for metric, values in gaps.items()},
            "splits": len(packed["rmse"]),
            "seconds": round(time.perf_counter() - start),
        }
        print(name, result["sets"][name], flush=True)
        RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
