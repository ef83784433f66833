"""Single Architecture Ensembles of all sizes beside their baselines: Figures 2 to 4 of their paper, small.

    PLURIBUS_DATA=... python benchmarks/sae_quality.py [--task pneumonia_mnist ...] [--seeds 1]

Every N from 1 to 3 and every K from 1 to D, with the method's usual settings; four members or draws of the
baselines, dropout of rate 0.1 before each linear or convolutional layer. The paper's networks, narrow; ViT
without dropout. BloodMNIST is replaced by Fashion-MNIST, Tiny ImageNet has ten classes. 200 test images are
corrupted by three kinds at five severities. Sizes were chosen once, for an hour of one core, before any
result of the method was seen; the last weights are kept. Regression is in the paper's units, targets in
[0, 1], in tables and grids; statements and the report have grades from 0 to 4. A run that was interrupted
goes on.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from sae_statements import (
    SPECIAL,
    across,
    against_baselines,
    configurations,
    final_preference,
    of_the_grid,
    plain,
)
from torch import nn

from pluribus.backbones import residual_mlp, resnet18, vgg, vit
from pluribus.comparison import compare
from pluribus.comparison.record import Record, read
from pluribus.data import Task, load_task
from pluribus.data.images import GRADES
from pluribus.method import Method
from pluribus.methods import SAE, BatchEnsemble, DeepEnsembles, MCDropout, Single
from pluribus.report.columns import summarise
from pluribus.report.groups import Entry, Group, group_records
from pluribus.report.page import write_page
from pluribus.report.tables import make_table
from pluribus.report.terminal import print_table
from pluribus.training import Training

OUT = Path("pluribus_runs/sae_quality")
RESULT = Path(__file__).parent / "results" / "sae_quality.json"
INPUTS = (1, 2, 3)
BASELINES = [Single(), DeepEnsembles(4), MCDropout(rate=0.1, draws=4, insert=True), BatchEnsemble(4)]
KINDS = ("gaussian_noise", "motion_blur", "contrast")
CORRUPTED = 200
OF_CLASSES = ("accuracy", "macro_f1", "ece", "class_conditional_ece", "nll")
COSTS = ("multiply_adds", "parameters", "multiply_adds_ratio", "parameters_ratio", "latency_ratio")
FAST = Training(epochs=8, batch=64, lr=3e-3, keep="last")


@dataclass(frozen=True)
class Study:
    """One set with its network.

    Args:
        network: What records call it.
        build: Makes it.
        depths: How many exits it has, its output among them.
        training: How it is trained.
        sizes: Of the task.
        shown: The two metrics of Figure 3.
        judged: Quality and trust, metrics whose noise is known.
    """

    network: str
    build: Callable[[], nn.Module]
    depths: int
    training: Training
    sizes: dict[str, object]
    shown: tuple[str, str]
    judged: tuple[str, str] = ("accuracy", "ece")

    @property
    def methods(self) -> list[Method]:
        """The baselines, then the whole grid."""
        return BASELINES + [SAE(inputs=n, exits=k) for n in INPUTS for k in range(1, self.depths + 1)]


STUDIES = {
    "pneumonia_mnist": Study(
        "residual MLP, width 128",
        partial(residual_mlp, 32 * 32, 2, width=128, depth=5),
        5,
        replace(FAST, epochs=10, lr=1e-3),
        {},
        ("macro_f1", "class_conditional_ece"),
    ),
    "retina_mnist": Study(
        "ViT, width 32",
        partial(vit, 2, width=32, depth=5, heads=4, mlp=128, dropout=0.0),
        5,
        replace(FAST, epochs=12, lr=1e-3),
        {},
        ("rmse", "gaussian_nll"),
        ("rmse", "gaussian_nll"),
    ),
    "fashion_mnist": Study(
        "VGG, width 1",
        partial(vgg, 10, 1),
        5,
        FAST,
        {"train": 2000, "validation": 400, "test": 1000, "border": 2, "ood": ()},
        ("macro_f1", "class_conditional_ece"),
    ),
    "tiny_imagenet": Study(
        "ResNet-18, width 8",
        partial(resnet18, 10, width=8),
        4,
        replace(FAST, epochs=6),
        {"train": 400, "validation": 200},
        ("accuracy", "ece"),
    ),
}


def make_task(name: str) -> Task:
    """The set with a few corruptions, made once for all runs."""
    task = load_task(name, **STUDIES[name].sizes)
    few = {"images": task.shifted.images[:CORRUPTED], "y": task.shifted.y[:CORRUPTED]}
    return replace(task, shifted=dict(replace(task.shifted, kinds=KINDS, **few).items()), ood={})


def numbers(run: Record) -> dict[str, float]:
    """All that is shown of a run; regression with targets in [0, 1]."""

    def in_units(section: dict[str, float]) -> dict[str, float]:
        if "rmse" not in section:
            return {name: section[name] for name in OF_CLASSES if name in section}
        scaled = (section["rmse"] / GRADES) ** 2, section["gaussian_nll"] + math.log(1 / GRADES)
        return dict(zip(("mse", "gaussian_nll"), scaled, strict=True))

    moved = [in_units(section) for section in run.shifted.values()]
    shifted = {f"shifted_{name}": statistics.fmean(one[name] for one in moved) for name in moved[0]}
    return in_units(run.metrics) | shifted | {name: run.cost[name] for name in COSTS}


def means(entry: Entry) -> dict[str, str]:
    """`0.852±0.001`: over seeds, with the standard error where there are several."""
    rows = [numbers(run) for run in entry.runs]
    return {
        name: summarise([row[name] for row in rows]).show(
            0 if name in COSTS[:2] else 4 if name.endswith("mse") else 3
        )
        for name in rows[0]
    }


def grids(group: Group) -> dict[str, dict[str, list[float]]]:
    """Figure 3: of each metric, a row for each number of inputs, from one exit on."""
    at = {
        (entry.runs[0].method["inputs"], entry.runs[0].method["exits"]): [numbers(run) for run in entry.runs]
        for entry in configurations(group)
    }
    first = next(iter(at.values()))[0]
    return {
        name: {
            f"N={n}": [
                round(statistics.fmean(row[name] for row in rows), 4)
                for (inputs, _), rows in sorted(at.items())
                if inputs == n
            ]
            for n in INPUTS
        }
        for name in first
        if name not in COSTS[2:]
    }


def summary(name: str, group: Group) -> dict[str, object]:
    """Return the scores of one set."""
    study = STUDIES[name]
    findings = [
        *against_baselines(group, *study.judged),
        *of_the_grid(group, *study.shown),
        SPECIAL[name](group),
    ]
    return {
        "task": f"{group.task}: {group.sizes}",
        "network": group.network,
        "training": study.training.to_dict(),
        "seeds": len(group.entries[0].runs),
        "minutes": round(sum(sum(run.seconds.values()) for run in group.records) / 60, 1),
        "means": {entry.label: means(entry) for entry in group.entries},
        "grids, from K=1": grids(group),
        "preference at the end, from depth 1": [round(share, 3) for share in final_preference(group)],
        "failed": [f"{label}: {run.error}" for label, run in group.failures],
        "statements": plain(findings),
    }


def main() -> None:
    """Runs, or goes on with, the studies asked for; writes the report, and the numbers of all done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--task", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.task:
        study = STUDIES[name]
        settings = {"training": study.training, "network": study.network, "seeds": given.seeds}
        compare(study.build, make_task(name), study.methods, out=OUT, **settings)
    found = {group.task: group for group in group_records(read([OUT], outcomes=True))}
    write_page(OUT, list(found.values()))
    for group in found.values():
        print_table(make_table(group), group.title)
    tasks = {name: summary(name, group) for name, group in found.items()}
    shown = {name: study.shown for name, study in STUDIES.items()}
    result = {
        "command": "python benchmarks/sae_quality.py",
        "corruptions": {"kinds": KINDS, "images": CORRUPTED},
        "tasks": tasks,
        "statements over all sets": plain(across(found, shown)) if found.keys() == STUDIES.keys() else [],
        "versions": next(iter(found.values())).records[0].versions,
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for name, one in tasks.items():
        print(
            name, *(f"{s['verdict']}: {s['statement']} | {s['found']}" for s in one["statements"]), sep="\n  "
        )


if __name__ == "__main__":
    main()
