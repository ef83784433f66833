"""Claims of four papers about residual networks on small images, with Fashion-MNIST at 14 x 14 for CIFAR-10.

    PLURIBUS_DATA=... python benchmarks/small_images.py ensembles [--seeds 3]
    PLURIBUS_DATA=... python benchmarks/small_images.py masks [--seeds 2]
    PLURIBUS_DATA=... python benchmarks/small_images.py patches [--seeds 3]
    PLURIBUS_DATA=... python benchmarks/small_images.py exits [--seeds 4]
    PLURIBUS_DATA=... python benchmarks/small_images.py retina [--seeds 3]
    PLURIBUS_DATA=... python benchmarks/small_images.py tiny [--seeds 3]
    python benchmarks/small_images.py ensembles --table

The first three have a ResNet of one basic block in each of three stages, whose stem reads squares of 2 x 2
pixels. Sizes were chosen once, from the time of a step, before any result was seen.

- `ensembles`: width 16, 2000 images, 500 steps of 64 with Adam, more where the recipe of a method wants them,
  the weights of the best validation NLL. Groups of packed members may have as few as two channels, because
  with the paper's 64 there would be no groups at this width. `resnext` is one network with blocks of four
  branches, which has the parameters and the multiply-adds of the packed ensemble and its recipe.
- `masks`: Table 1 and Figures 6, 8 and 9 of Masksembles: width 8, 10,000 images, 40 epochs of batches of 128
  for all, `keep_capacity`, the last weights.
- `patches`: norms and output patched against norms alone, EMP and ECMP: width 8, 4000 images, 40 epochs of
  batches of 64, the last weights, because patches need long training, which 500 steps are not.
- `exits`: Figures 2 to 4 of SAE on PneumoniaMNIST at 14 x 14: a residual MLP of width 64 and four exits, 600
  steps of 64, twice as many with several inputs, the weights of the best validation NLL. All N and K up to 4,
  T ending at 0.1, 0.5 and 1 for three of them, schedules beside constants for N = K = 3.
- `retina`: RetinaMNIST at 16 x 16, grades as numbers, with a vision transformer of width 32 and four blocks.
- `tiny`: ten classes of Tiny ImageNet at 32 x 32 with the residual network. Both compare the cases of SAE.

Networks are scored on test images, at most 2000; on 200 of them with five corruptions at five
severities, where the calibration error of a severity is that of its kinds together; and on 1000 images each
of MNIST and KMNIST, the strangers. One line per run goes to `results/small_images_<study>.jsonl`; runs that
are there are not repeated.
"""

import argparse
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, ClassVar

import torch
from moonshot_tasks import halved, halved_task
from torch import Tensor, nn

import pluribus as pl
from pluribus.backbones import residual_mlp, vit
from pluribus.backbones.resnet import BasicBlock, conv1x1, projection, resnet
from pluribus.data import Task, load_task
from pluribus.data.shifted import SEVERITIES
from pluribus.data.split import Split
from pluribus.mechanisms.graph.cost import cost
from pluribus.methods import (
    ECMP,
    EMP,
    SAE,
    BatchEnsemble,
    DeepEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
    Single,
)
from pluribus.metrics import METRICS, aupr, auroc, ood_scores
from pluribus.metrics.shift import ShiftErrors, mean_corruption_error, relative_mean_corruption_error
from pluribus.prediction import DiscretePrediction, Prediction
from pluribus.training import Training, train
from pluribus.training.work import train_multiply_adds

RESULTS = Path(__file__).parent / "results"
KINDS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
SCORES = ("accuracy", "nll", "ece")
TEST, CORRUPTED, STRANGERS, DRAWN = 2000, 200, 1000, 1000
"""Images of each set; `DRAWN` of the test set for many draws."""
DRAWS, MANY = 20, (20, 100, 200)
"""Draws of patches in general, and the numbers that are compared."""

Line = dict[str, Any]


class BranchedBlock(nn.Module):
    """A 1x1, a 3x3 and a 1x1 convolution, the second in four branches, and a shortcut, as in ResNeXt."""

    expansion: ClassVar[int] = 1

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        planes = outputs // 2
        branches = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, groups=4, bias=False)
        self.body = nn.Sequential(
            conv1x1(inputs, planes),
            nn.BatchNorm2d(planes),
            nn.ReLU(),
            branches,
            nn.BatchNorm2d(planes),
            nn.ReLU(),
            conv1x1(planes, outputs),
            nn.BatchNorm2d(outputs),
        )
        self.downsample = projection(inputs, outputs, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.relu(self.body(x) + self.downsample(x))
        return total


def small_resnet(width: int, channels: int = 1) -> nn.Sequential:
    """Build the residual network: `[batch, channels, height, width]` to `[batch, 10]`."""
    body = resnet(BasicBlock, (1, 1, 1), classes=10, in_channels=4 * channels, stem="cifar", width=width)
    return nn.Sequential(nn.PixelUnshuffle(2), body)


def small_resnext() -> nn.Sequential:
    """Build the network of branched blocks: `[batch, 1, 14, 14]` to `[batch, 10]`."""
    body = resnet(BranchedBlock, (2, 2, 2), classes=10, in_channels=4, stem="cifar", width=32)
    return nn.Sequential(nn.PixelUnshuffle(2), body)


@dataclass(frozen=True)
class Study:
    """Configurations that are compared, with one task, one network and one training."""

    load: Callable[[], Task]
    build: Callable[[], nn.Module]
    training: Training
    follows_recipes: bool
    methods: Callable[[], dict[str, pl.Method]]
    scores: tuple[str, ...] = SCORES
    shifted_scores: tuple[str, ...] = SCORES
    builds: Mapping[str, Callable[[], nn.Module]] = field(default_factory=dict)
    """Networks of configurations that have one of their own."""
    compares_draws: bool = False


def ensembles() -> dict[str, pl.Method]:
    """Return the methods of the first study, in the order in which they run."""
    packed = partial(PackedEnsembles, alpha=2.0, min_channels=2)
    return {
        "single": Single(),
        "deep, 4": DeepEnsembles(4),
        "packed, 4": packed(4),
        "packed, γ = 2": packed(4, gamma=2),
        "packed, γ = 4": packed(4, gamma=4),
        "packed, 2": packed(2),
        "packed, 8": packed(8),
        "masksembles": Masksembles(4),
        "mc_dropout": MCDropout(draws=8),
        "emp, norms": EMP(where="norm", draws=DRAWS),
        "emp": EMP(draws=DRAWS),
        "batch_ensemble": BatchEnsemble(4),
        # One network of branches, as a packed ensemble of one member: it is trained by the same recipe.
        "resnext": PackedEnsembles(1, alpha=1.0),
    }


def masks() -> dict[str, pl.Method]:
    """Return the scales of Masksembles, one network (S = 1) and deep ensembles."""
    scales = (2.0, 5.0, 3.0, 1.5)
    of_scales = {f"S = {scale:g}": Masksembles(4, scale, keep_capacity=True) for scale in scales}
    return {"S = 1": Single(), "deep, 4": DeepEnsembles(4)} | of_scales


def patches() -> dict[str, pl.Method]:
    """Return EMP and ECMP with and without a patched output, and one network."""
    found: dict[str, pl.Method] = {"single": Single()}
    for name, kind in {"emp": EMP, "ecmp": ECMP}.items():
        found[name] = kind(draws=DRAWS)
        found[f"{name}, norms"] = kind(where="norm", draws=DRAWS)
    return found


def exits() -> dict[str, pl.Method]:
    """Return the grid of SAE, its schedules, and baselines."""
    found: dict[str, pl.Method] = {
        "single": Single(),
        "deep, 4": DeepEnsembles(4),
        "mc_dropout": MCDropout(rate=0.1, draws=8, insert=True),
        "batch_ensemble": BatchEnsemble(4),
    }
    for inputs in range(1, 5):
        for outputs in range(1, 5):
            found[f"sae {inputs} {outputs}"] = SAE(inputs, outputs)
    for inputs, outputs in ((2, 2), (3, 3), (2, 4)):
        for end in (0.1, 1.0):
            found[f"sae {inputs} {outputs}, T to {end:g}"] = SAE(inputs, outputs, temperature=(1.0, end))
    for share in ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0)):
        label = f"sae 3 3, repetition {share[0]:g} to {share[1]:g}"
        found[label] = SAE(3, 3, input_repetition=share)
    for alpha in ((1.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        found[f"sae 3 3, α {alpha[0]:g} to {alpha[1]:g}"] = SAE(3, 3, alpha=alpha)
    return found


def cases(depths: int) -> dict[str, pl.Method]:
    """Return the cases of SAE on a network of so many exits: early exits, MIMO, those in between, MIMMO."""
    pairs = ((1, depths), (2, 1), (3, 1), (2, 2), (2, 3), (3, 2), (2, depths))
    of_pairs = {f"sae {inputs} {outputs}": SAE(inputs, outputs) for inputs, outputs in pairs}
    return {"single": Single(), "deep, 4": DeepEnsembles(4)} | of_pairs


def fashion(images: int) -> Task:
    """Return Fashion-MNIST with its strangers, at 28 x 28 pixels."""
    task = load_task("fashion_mnist", train=images, validation=1000, test=TEST)
    return replace(task, ood={name: task.ood[name][:STRANGERS] for name in ("mnist", "kmnist")})


def pneumonia() -> Task:
    """Return PneumoniaMNIST without strangers, at 28 x 28 pixels."""
    return replace(load_task("pneumonia_mnist", border=0), ood={})


def without_strangers(name: str) -> Task:
    """Return a task without strangers."""
    return replace(load_task(name), ood={})


STUDIES = {
    "ensembles": Study(
        partial(fashion, 2000),
        partial(small_resnet, 16),
        Training(steps=500, batch=64, lr=3e-3, check_every=3),
        True,
        ensembles,
        builds={"resnext": small_resnext},
        compares_draws=True,
    ),
    "masks": Study(
        partial(fashion, 10_000),
        partial(small_resnet, 8),
        Training(epochs=40, batch=128, lr=3e-3, keep="last", check_every=5),
        False,
        masks,
    ),
    "patches": Study(
        partial(fashion, 4000),
        partial(small_resnet, 8),
        Training(epochs=40, batch=64, lr=3e-3, keep="last", check_every=5),
        False,
        patches,
    ),
    "exits": Study(
        pneumonia,
        partial(residual_mlp, 14 * 14, 2, width=64, depth=4),
        Training(steps=600, batch=64, lr=1e-3, check_every=1),
        True,
        exits,
        (*SCORES, "macro_f1", "class_conditional_ece"),
    ),
    "retina": Study(
        partial(without_strangers, "retina_mnist"),
        partial(vit, classes=2, image_size=16, width=32, depth=4, mlp=64),
        Training(steps=600, batch=64, lr=1e-3, check_every=1),
        True,
        partial(cases, 4),
        ("rmse", "gaussian_nll"),
        ("rmse", "gaussian_nll"),
    ),
    "tiny": Study(
        partial(without_strangers, "tiny_imagenet"),
        partial(small_resnet, 16, channels=3),
        Training(steps=800, batch=64, lr=3e-3, check_every=2),
        True,
        partial(cases, 3),
        (*SCORES, "macro_f1", "class_conditional_ece"),
    ),
}


def make_small(task: Task) -> tuple[Task, dict[tuple[str, int], Split]]:
    """Return the task and its corruptions, with half of the pixels on each side."""
    few = {"images": task.shifted.images[:CORRUPTED], "y": task.shifted.y[:CORRUPTED]}
    corruptions = replace(task.shifted, kinds=KINDS, **few)
    shifted = {key: Split(halved(split.x), split.y) for key, split in corruptions.items()}
    return halved_task(task, task.ood), shifted


def under_corruption(
    ensemble: pl.Ensemble, shifted: dict[tuple[str, int], Split], scores: tuple[str, ...]
) -> Line:
    """Return the scores at each severity, all kinds together, and for classes the errors of each kind."""
    found: Line = {f"{raw}shifted_{name}": [] for raw in ("", "raw_") for name in scores}
    errors: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for severity in SEVERITIES:
        splits = [shifted[kind, severity] for kind in KINDS]
        y = torch.cat([split.y for split in splits])
        prediction = ensemble.predict(torch.cat([split.x for split in splits]), chunk=500)
        for name in scores:
            found[f"shifted_{name}"].append(METRICS[name](prediction, y))
            found[f"raw_shifted_{name}"].append(METRICS[name](prediction.raw, y))
        if isinstance(prediction, DiscretePrediction):
            wrong = (prediction.labels != y).double().unflatten(0, (len(KINDS), -1)).mean(1)
            for kind, share in zip(KINDS, wrong.tolist(), strict=True):
                errors[kind].append(share)
    return found | ({"errors": errors} if "accuracy" in scores else {})


def strangers_told(ensemble: pl.Ensemble, task: Task, known: Prediction) -> Line:
    """Return the areas under both curves for each score and set of strangers."""
    found: Line = {}
    if not task.ood:
        return found
    inside = ood_scores(known)
    for name, images in task.ood.items():
        outside = ood_scores(ensemble.predict(images, chunk=500))
        for score, values in inside.items():
            found[f"auroc_{name}_{score}"] = auroc(values, outside[score])
            found[f"aupr_{name}_{score}"] = aupr(values, outside[score])
    return found


def by_draws(ensemble: pl.Ensemble, x: Tensor, y: Tensor) -> Line:
    """Return the scores of several numbers of draws of the same weights."""
    found: Line = {}
    prediction = ensemble.predict(x, chunk=250, draws=max(MANY))
    rows = len(prediction.members)
    for draws in MANY:
        weights = (torch.arange(rows) < draws).float() / draws
        for name in SCORES:
            found[f"{name}, {draws} draws"] = METRICS[name](prediction.weighted(weights), y)
    return found


def measure(study: Study, label: str, seed: int, task: Task, shifted: Any) -> Line:
    """Train a configuration once and return the scores."""
    method, build = study.methods()[label], study.builds.get(label, study.build)
    training = replace(study.training, seed=seed)
    if study.follows_recipes:
        training = training.following(method.recipe(), len(task.train))
    torch.manual_seed(seed)
    example = task.train.x[:2]
    ensemble = pl.convert(build, method, task.likelihood, example=example, seed=seed)
    start = time.process_time()
    history = train(ensemble, task, training, show=False)
    seconds = time.process_time() - start
    checked = [row for row in history if not math.isnan(row["validation_nll"])]
    prediction = ensemble.predict(task.test.x, chunk=500)
    whole, frozen = cost(study.build().eval(), example[:1]), cost(ensemble.freeze(), example[:1])
    line: Line = {name: METRICS[name](prediction, task.test.y) for name in study.scores}
    line |= {f"raw_{name}": METRICS[name](prediction.raw, task.test.y) for name in study.scores}
    line |= under_corruption(ensemble, shifted, study.shifted_scores) | strangers_told(
        ensemble, task, prediction
    )
    if isinstance(prediction, DiscretePrediction):
        # On the images that are corrupted, which are the first of the test set.
        wrong = prediction.labels[:CORRUPTED] != task.test.y[:CORRUPTED]
        line["clean_error"] = wrong.double().mean().item()
    if study.compares_draws and isinstance(method, EMP):
        line |= by_draws(ensemble, task.test.x[:DRAWN], task.test.y[:DRAWN])
    if isinstance(method, SAE):
        # Without T: how much was learnt, which a low T at the end would exaggerate.
        line["softmax of the logits"] = ensemble.members.index.logits.detach().softmax(1).tolist()
    return line | {
        "steps": history[-1]["step"],
        "best_step": min(checked, key=lambda row: row["validation_nll"])["step"],
        "best_validation_nll": min(row["validation_nll"] for row in checked),
        "last_validation_nll": checked[-1]["validation_nll"],
        "parameters_ratio": frozen.parameters / whole.parameters,
        "multiply_adds_ratio": frozen.multiply_adds / whole.multiply_adds,
        "train_multiply_adds": train_multiply_adds(ensemble, task, training, history[-1]["step"]),
        "train_cpu_seconds": round(seconds, 1),
    }


def read_runs(path: Path) -> list[Line]:
    """Return the runs of a file, none where there is none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(name: str, seeds: int, wanted: list[str]) -> None:
    """Run what is missing, seed by seed, and write each run as soon as it is done."""
    study, path = STUDIES[name], RESULTS / f"small_images_{name}.jsonl"
    done = {(line["label"], line["seed"]) for line in read_runs(path)}
    task, shifted = make_small(study.load())
    for seed in range(seeds):
        for label, method in study.methods().items():
            if (label, seed) in done or (wanted and label not in wanted):
                continue
            found = {"label": label, "seed": seed} | measure(study, label, seed, task, shifted)
            found["settings"] = method.to_dict()
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found, ensure_ascii=False) + "\n")
            shown = {key: round(found[key], 3) for key in (*study.scores, "train_cpu_seconds")}
            print(
                time.strftime("%H:%M:%S"), seed, label, shown, found["best_step"], found["steps"], flush=True
            )


def shift_errors(line: Line) -> ShiftErrors:
    """Return the errors of a run, clean and corrupted, on the same images where both are known."""
    return ShiftErrors(line.get("clean_error", 1 - line["accuracy"]), line["errors"])


def title(name: str) -> str:
    """Return what a column is called: scores are raw unless it says calibrated."""
    if name.startswith("raw_"):
        return name.removeprefix("raw_").replace("shifted_", "shifted ")
    changes = not name.endswith(("accuracy", "macro_f1", "rmse"))
    return ("calibrated " if changes else "") + name.replace("shifted_", "shifted ")


def columns(line: Line, single: Line) -> Iterator[tuple[str, float]]:
    """Yield the columns of the table for one run, beside that of one network with the same seed."""
    for name in line:
        if name.removeprefix("raw_") in METRICS and name != "raw_accuracy":
            yield title(name), line[name]
    for name in line:
        of_metric = name.removeprefix("raw_").removeprefix("shifted_") in METRICS
        if "shifted_" in name and of_metric and name != "raw_shifted_accuracy":
            yield title(name), fmean(line[name])
    if "errors" in line:
        yield "mCE", mean_corruption_error(shift_errors(line), shift_errors(single))
    # Runs of before have the clean error of other images alone, with which this has no meaning. Nor has it
    # any where a corruption costs one network nothing, as blur does on some seeds.
    if "clean_error" in line and all(
        fmean(found) > single["clean_error"] for found in single["errors"].values()
    ):
        yield "relative mCE", relative_mean_corruption_error(shift_errors(line), shift_errors(single))
    strangers = [key for key in line if key.startswith(("auroc_mnist", "aupr_mnist"))]
    for key in strangers:
        yield key.replace("_mnist_", " "), fmean((line[key], line[key.replace("mnist", "kmnist")]))
    for key in line:
        if "draws" in key:
            yield key, line[key]
    yield "validation nll", line["best_validation_nll"]
    yield "parameters ×", line["parameters_ratio"]
    yield "multiply-adds ×", line["multiply_adds_ratio"]
    yield "training ×", line["train_multiply_adds"] / single["train_multiply_adds"]
    yield "best step", line["best_step"] / line["steps"]


def mean_and_error(values: list[float]) -> str:
    """Return `0.852±0.001`, the mean over seeds and its standard error."""
    error = f"±{stdev(values) / math.sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{fmean(values):.3f}{error}"


def paired(cells: dict[tuple[str, int], dict[str, float]], column: str, label: str, other: str) -> str:
    """Return how much greater a value is than that of another configuration, over the seeds of both."""
    pairs = [(of_one, cells.get((other, seed), {})) for (one, seed), of_one in cells.items() if one == label]
    gaps = [mine[column] - its[column] for mine, its in pairs if column in mine and column in its]
    return mean_and_error(gaps) if gaps else ""


def summary(name: str) -> dict[str, Any]:
    """Return means over seeds for each configuration, beside one network and deep ensembles."""
    runs = {(line["label"], line["seed"]): line for line in read_runs(RESULTS / f"small_images_{name}.jsonl")}
    methods = STUDIES[name].methods()
    first = next(iter(methods))
    cells = {key: dict(columns(line, runs[first, key[1]])) for key, line in runs.items()}
    found: dict[str, Any] = {}
    for label in methods:
        seeds = [seed for one, seed in cells if one == label]
        if not seeds:
            continue
        of_label: dict[str, Any] = {"seeds": len(seeds)}
        for column in dict.fromkeys(name for seed in seeds for name in cells[label, seed]):
            values = [cells[label, seed][column] for seed in seeds if column in cells[label, seed]]
            of_label[column] = {
                "mean": mean_and_error(values),
                "seeds": len(values),
                "less one network's": paired(cells, column, label, first),
                "less that of four": paired(cells, column, label, "deep, 4"),
            }
        for metric in ("raw_shifted_ece", "shifted_ece", "shifted_accuracy"):
            curves = [runs[label, seed][metric] for seed in seeds if metric in runs[label, seed]]
            if curves:
                by_severity = [round(fmean(at), 3) for at in zip(*curves, strict=True)]
                of_label[f"{title(metric)}, severity 1 to 5"] = by_severity
        if "softmax of the logits" in runs[label, seeds[0]]:
            shares = [row for seed in seeds for row in runs[label, seed]["softmax of the logits"]]
            of_label["softmax of the logits, from depth 1"] = [
                round(fmean(at), 3) for at in zip(*shares, strict=True)
            ]
        found[label] = of_label
    return found


def ranks(found: dict[str, Any]) -> dict[str, float]:
    """Return mean ranks, over metrics, of the baselines and of the SAE with the lowest validation NLL."""
    most = max(of_label["seeds"] for of_label in found.values())
    found = {label: of_label for label, of_label in found.items() if of_label["seeds"] == most}
    grid = [label for label in found if re.fullmatch(r"sae \d \d", label)]
    chosen = min(grid, key=lambda label: value(found, label, "validation nll"))
    compared = [label for label in found if not label.startswith("sae")] + [chosen]
    metrics = [name for name in found[chosen] if name.removeprefix("shifted ") in METRICS]
    total = dict.fromkeys(compared, 0)
    for metric in metrics:
        higher = metric.endswith(("accuracy", "macro_f1"))
        order = sorted(compared, key=lambda label: value(found, label, metric), reverse=higher)
        for place, label in enumerate(order, 1):
            total[label] += place
    return {label: round(places / len(metrics), 2) for label, places in total.items()}


def value(found: dict[str, Any], label: str, column: str) -> float:
    """Return the mean in a cell."""
    return float(found[label][column]["mean"].split("±")[0])


def show(name: str) -> None:
    """Write the summaries of all studies, and print that of one."""
    path = RESULTS / "small_images.json"
    summaries = {one: found for one in STUDIES if (found := summary(one))}
    if "exits" in summaries:
        summaries["ranks of exits"] = ranks(summaries["exits"])
    path.write_text(json.dumps(summaries, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for label, of_label in summaries.get(name, {}).items():
        print(f"\n{label}")
        for column, cell in of_label.items():
            shown = [f"{part!s:16}" for part in cell.values()] if isinstance(cell, dict) else [str(cell)]
            print(f"  {column:28} {' '.join(shown)}")
    print(summaries.get(f"ranks of {name}", ""))


def main() -> None:
    """Run what is missing, or print the table of what is there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], help="labels of the configurations to run")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if not given.table:
        run(given.study, given.seeds, given.only)
    show(given.study)


if __name__ == "__main__":
    main()
