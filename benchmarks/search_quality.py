"""Measure searches: hypervolume against random search, and the configurations that they find for SAE.

    python benchmarks/search_quality.py digits
    python benchmarks/search_quality.py residual_mlp
    python benchmarks/search_quality.py resnet

Trials are short, so that a study of 20 of them takes minutes on one core:

    digits         all default methods, a CNN of 8 channels, 300 digits, 100 steps
    residual_mlp   SAE on PneumoniaMNIST, a residual MLP of width 64 and depth 4, 300 steps
    resnet         SAE on PneumoniaMNIST at 14 × 14 pixels, a ResNet of 10 layers and 4 channels, 60 steps

Every part runs a sampler and random search with the same number of trials, for three seeds of the sampler
each; `--samplers` and `--first-seed` name others. For SAE the configuration that the first sampler found with
the best NLL on validation data, first seed, is then trained as long as its recipe has it, beside Single,
DeepEnsembles(4), MIMO, EarlyExit and MIMMO, at least 1000 steps (150 for the ResNet, whose steps cost more)
and three seeds each, and measured on test data. Run again, it continues; results go to
`benchmarks/results/search_quality.json`. With `--table` nothing is searched: the configuration that was found
before, its settings as they are printed, is trained again beside the baselines.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from torch import nn

from pluribus.backbones import cnn, residual_mlp
from pluribus.backbones.resnet import BasicBlock, resnet
from pluribus.comparison.comparison import compare
from pluribus.comparison.record import Record
from pluribus.data import digits, load_task
from pluribus.data.split import Split
from pluribus.data.task import Task
from pluribus.method import Method
from pluribus.method_text import read_method
from pluribus.methods import MIMMO, MIMO, SAE, DeepEnsembles, EarlyExit, Single
from pluribus.search import Study, search
from pluribus.search.engine import METHODS
from pluribus.training import Training

RESULTS = Path(__file__).parent / "results" / "search_quality.json"
SAMPLERS = ("tpe", "random")
BASELINES = (Single(), DeepEnsembles(members=4), MIMO(), EarlyExit(), MIMMO())
NUMBERS = ("accuracy", "nll", "ece")
FINAL_SEEDS = 3
LR = 3e-3
FOUND = "found: "
"""Before the configuration that a search found, in the table."""


@dataclass(frozen=True)
class Part:
    """One task with its network, methods and training.

    Attributes:
        task: Loads the data.
        build: Makes the network.
        methods: To search.
        steps: Of training.
        baselines: To compare the found configuration with.
        final_steps: Of the runs in the table, before their recipes make them longer.
    """

    task: Callable[[], Task]
    build: Callable[[], nn.Module]
    methods: Sequence[Method]
    steps: int
    baselines: Sequence[Method] = ()
    final_steps: int = 1000


def small_cnn() -> nn.Module:
    """Return a CNN for digits."""
    return cnn(classes=10, in_channels=1, width=8)


def small_mlp() -> nn.Module:
    """Return a residual MLP for PneumoniaMNIST."""
    return residual_mlp(28 * 28, 2, width=64, depth=4)


def small_resnet() -> nn.Module:
    """Return a ResNet for PneumoniaMNIST."""
    return resnet(BasicBlock, (1, 1, 1, 1), classes=2, in_channels=1, stem="cifar", width=4)


def pneumonia() -> Task:
    """Return PneumoniaMNIST."""
    return load_task("pneumonia_mnist", border=0)


def small_pneumonia() -> Task:
    """Return PneumoniaMNIST with squares of 2 × 2 pixels averaged."""
    task = pneumonia()
    parts = {}
    for name in ("train", "validation", "test"):
        split = getattr(task, name)
        parts[name] = Split(nn.functional.avg_pool2d(split.x, 2), split.y)
    return replace(task, **parts, shifted={}, ood={})


PARTS = {
    "digits": Part(lambda: digits(train=300), small_cnn, METHODS, 100),
    "residual_mlp": Part(pneumonia, small_mlp, (SAE(),), 300, BASELINES),
    "resnet": Part(small_pneumonia, small_resnet, (SAE(),), 60, BASELINES, final_steps=150),
}


def run_study(name: str, part: Part, task: Task, sampler: str, seed: int, trials: int, out: Path) -> Study:
    """Search with one sampler and one seed; a configuration that several searches draw is trained once."""
    return search(
        part.build,
        task,
        part.methods,
        objectives="nll,multiply_adds",
        trials=trials,
        sampler=sampler,
        sampler_seed=seed,
        training=Training(steps=part.steps, lr=LR),
        recipes=False,
        name=f"{sampler}-{seed}",
        out=out / name,
        show=False,
    )


def hypervolumes(studies: dict[str, Study]) -> dict[str, list[float]]:
    """Return the hypervolume after each trial, all on the same axes."""
    everything = list(studies.values())
    found = {}
    for name, study in studies.items():
        found[name] = [round(value, 4) for value in study.hypervolumes(everything)]
    return found


def row(records: Sequence[Record]) -> dict[str, Any]:
    """Return the numbers of a table: mean and deviation over seeds, and costs."""
    found: dict[str, Any] = {}
    for name in NUMBERS:
        values = [record.metrics[name] for record in records]
        found[name] = [round(mean(values), 4), round(stdev(values), 4)]
    for cost in ("parameters_ratio", "multiply_adds_ratio", "train_multiply_adds_ratio"):
        found[cost] = round(records[0].cost[cost], 3)
    return found


def beside_baselines(
    name: str, part: Part, task: Task, method: Method, label: str, out: Path
) -> dict[str, Any]:
    """Return the found configuration and the baselines on test data."""
    records = compare(
        part.build,
        task,
        (method, *part.baselines),
        seeds=FINAL_SEEDS,
        training=Training(steps=part.final_steps, lr=LR),
        shifted=False,
        out=out / name / "table",
        show=False,
    )
    found = {}
    for one in (method, *part.baselines):
        found[FOUND + label if one is method else one.kind()] = row(
            [record for record in records if record.method["kind"] == one.kind()]
        )
    return found


def read() -> dict[str, Any]:
    """Return the results of all parts."""
    return json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}


def store(name: str, result: dict[str, Any]) -> None:
    """Add the result of a part to the file."""
    known = read()
    known[name] = result
    RESULTS.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0, help="of the sampler")
    parser.add_argument("--samplers", nargs="+", default=SAMPLERS)
    parser.add_argument("--no-table", action="store_true", help="leave the table of baselines as it is")
    parser.add_argument("--table", action="store_true", help="measure the table anew, without a search")
    parser.add_argument("--out", type=Path, default=Path("pluribus_runs/search_quality"))
    given = parser.parse_args()
    part = PARTS[given.part]
    task = part.task()
    if given.table:
        known = read()[given.part]
        label = next(key for key in known["table"] if key.startswith(FOUND)).removeprefix(FOUND)
        known["table"] = beside_baselines(given.part, part, task, read_method(label), label, given.out)
        store(given.part, known)
        return
    studies: dict[str, Study] = {}
    known = read().get(given.part, {})
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        for sampler in given.samplers:
            studies[f"{sampler}-{seed}"] = run_study(
                given.part, part, task, sampler, seed, given.trials, given.out
            )
            print(given.part, sampler, seed, "finished", flush=True)
        volumes = hypervolumes(studies)
        result = known | {"trials": given.trials, "steps": part.steps, "hypervolumes": volumes}
        store(given.part, result)
        print({key: curve[-1] for key, curve in volumes.items()}, flush=True)
    if part.baselines and not given.no_table:
        study = studies[f"{given.samplers[0]}-{given.first_seed}"]
        chosen = study.choose()
        method = study.configuration(chosen).method
        result["table"] = beside_baselines(given.part, part, task, method, chosen.label, given.out)
        store(given.part, result)


if __name__ == "__main__":
    main()
