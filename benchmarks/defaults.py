"""Measure candidates for the default settings of methods on validation data: digits and small Fashion-MNIST.

    python benchmarks/defaults.py patching
    python benchmarks/defaults.py papers --seeds 3      # every method of the five papers, and one network
    python benchmarks/defaults.py papers --table        # the table of the docs, of the runs that are there

A small CNN on 300 digits (1000 steps) and on 2000 images of Fashion-MNIST at 14 × 14 pixels (1024 steps), the
default training, with the method's recipe unless a candidate has another length. Test data is not read,
because defaults are chosen on validation data alone; only `alphas`, `longer`, `papers` and `widths`, which
choose nothing, have scores on test data, for networks with exits also with other weights, and on digits how
well they tell photographs. One line per run goes to
`benchmarks/results/defaults_<study>.jsonl`; runs that are there are not repeated.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from torch import nn

import pluribus as pl
from pluribus import data
from pluribus.backbones import cnn
from pluribus.data.task import Split, Task
from pluribus.mechanisms.graph.cost import cost
from pluribus.methods import (
    ECMP,
    EMP,
    MIMMO,
    MIMO,
    SAE,
    DeepEnsembles,
    EarlyExit,
    LayerEnsembles,
    Masksembles,
    PackedEnsembles,
    Single,
)
from pluribus.metrics import METRICS, aupr, auroc
from pluribus.training import Training, train

RESULTS = Path(__file__).parent / "results"
SCORES = ("accuracy", "nll", "ece", "mutual_information")


def digits() -> Task:
    """Return 300 digits to train on."""
    return data.digits(train=300, validation=400)


def fashion() -> Task:
    """Return 2000 images of 14 × 14 pixels."""
    task = data.load_task("fashion_mnist", train=2000, validation=2000)
    halved = {name: _halved(getattr(task, name)) for name in ("train", "validation", "test")}
    return replace(task, **halved, shifted={}, ood={})


def _halved(split: Split) -> Split:
    return Split(nn.functional.avg_pool2d(split.x, 2), split.y)


TASKS: dict[str, Callable[[], Task]] = {"digits": digits, "fashion": fashion}
LIMIT = 4.3
"""Standard errors of a paired difference over three seeds that chance makes in 5 % of cases (Student's t)."""
CHECKS = {"digits": 5, "fashion": 2}
"""Epochs between two validations: fewer than by default, for the time they take."""


@dataclass(frozen=True)
class Candidate:
    """Settings to measure.

    Attributes:
        label: A short name.
        method: The method.
        longer: Factor of the steps; None is that of the method's recipe.
    """

    label: str
    method: pl.Method
    longer: float | None = None


def sae() -> Iterator[Candidate]:
    """Yield candidates for the Single Architecture Ensemble."""
    yield Candidate("default", SAE())
    yield Candidate("default, 2 x steps", SAE(), 2)
    yield Candidate("one batch", SAE(batch_repetition=1))
    yield Candidate("independent inputs", SAE(input_repetition=(0.0, 0.0)))
    yield Candidate("same inputs at the end", SAE(input_repetition=(0.5, 1.0)))
    first = SAE(temperature=(1.0, 0.01), input_repetition=(0.0, 0.0), draw_from="logits")
    yield Candidate("authors' code", first)


def mimo() -> Iterator[Candidate]:
    """Yield candidates for MIMO."""
    for inputs in (2, 3):
        for repetition in (0.0, 0.5):
            yield Candidate(
                f"{inputs} inputs, {repetition}", MIMO(inputs=inputs, input_repetition=repetition)
            )


def mimmo() -> Iterator[Candidate]:
    """Yield candidates for MIMMO."""
    yield Candidate("as in the paper", MIMMO(input_repetition=0.0, fit_weights=False), 1)
    yield Candidate("fitted weights", MIMMO(input_repetition=0.0, fit_weights=True), 1)
    yield Candidate("half repeated, fitted weights", MIMMO(input_repetition=0.5, fit_weights=True), 1)
    yield Candidate("the same, 2 x steps", MIMMO(input_repetition=0.5, fit_weights=True), 2)


def patching() -> Iterator[Candidate]:
    """Yield candidates for the start of EMP and ECMP."""
    for distance in (0.01, 0.1, 0.3):
        yield Candidate(f"emp {distance}", EMP(perturbation=distance, draws=20))
    yield Candidate("emp 0.01, 2 x steps", EMP(perturbation=0.01, draws=20), 2)
    for distance in (0.01, 0.1, 0.3, 0.5, 1.0):
        yield Candidate(f"emp {distance} per sample", EMP(perturbation=distance, draws=20, per_sample=True))
    yield Candidate("emp 0.3, 5 draws a step", EMP(perturbation=0.3, draws=20, train_draws=5))
    yield Candidate("emp fresh per sample", EMP(start="fresh", draws=20, per_sample=True))
    for distance in (0.01, 0.1, 0.3, 0.5, 1.0):
        yield Candidate(f"ecmp {distance}", ECMP(perturbation=distance, draws=20))


def longer() -> Iterator[Candidate]:
    """Yield patches and one network that train for twice the usual steps."""
    yield Candidate("single, 2 x steps", Single(), 2)
    yield Candidate("emp, 2 x steps", EMP(draws=16), 2)
    yield Candidate("ecmp, 2 x steps", ECMP(draws=16), 2)


def masks() -> Iterator[Candidate]:
    """Yield candidates for the training of Masksembles, at equal steps."""
    for repeat in (False, True):
        for statistics in ("shared", "member"):
            label = f"{statistics} statistics, {'every sample' if repeat else 'a part'} for each member"
            yield Candidate(label, Masksembles(repeat=repeat, statistics=statistics), 1)


def layers() -> Iterator[Candidate]:
    """Yield candidates for the training of layer ensembles."""
    yield Candidate("default", LayerEnsembles(draws=16))
    yield Candidate("3 x steps", LayerEnsembles(draws=16), 3)
    yield Candidate("start from copies", LayerEnsembles(draws=16, start="copy"))
    yield Candidate("without a prior", LayerEnsembles(draws=16, prior_scale=0.0))
    yield Candidate("without a prior, 3 x steps", LayerEnsembles(draws=16, prior_scale=0.0), 3)


def exits() -> Iterator[Candidate]:
    """Yield candidates for early exits."""
    yield Candidate("default", EarlyExit())
    yield Candidate("3 x steps", EarlyExit(), 3)
    yield Candidate("the two deepest", EarlyExit(exits=2))
    yield Candidate("wide heads", EarlyExit(heads="wide"))


def alphas() -> Iterator[Candidate]:
    """Yield packed ensembles from a quarter of the width up to whole networks: Fig. 6 of their paper."""
    for alpha in (1.0, 1.5, 2.0, 3.0, 4.0):
        yield Candidate(f"alpha {alpha:g}", PackedEnsembles(alpha=alpha))


def widths() -> Iterator[Candidate]:
    """Yield one network of several widths: Fig. 8 and App. G of Packed-Ensembles."""
    for width in (0.25, 0.5, 1.0, 2.0):
        yield Candidate(f"width {width:g}", PackedEnsembles(1, alpha=width))


def papers() -> Iterator[Candidate]:
    """Yield the methods of the five papers with their defaults, but for fewer draws in prediction."""
    yield Candidate("deep_ensembles", DeepEnsembles())
    yield Candidate("packed_ensembles", PackedEnsembles())
    yield Candidate("sae", SAE())
    yield Candidate("mimo", MIMO())
    yield Candidate("mimmo", MIMMO())
    yield Candidate("early_exit", EarlyExit())
    yield Candidate("masksembles", Masksembles())
    yield Candidate("emp", EMP(draws=16))
    yield Candidate("ecmp", ECMP(draws=16))
    yield Candidate("layer_ensembles", LayerEnsembles(draws=16))


STUDIES: dict[str, Callable[[], Iterator[Candidate]]] = {
    "alphas": alphas,
    "exits": exits,
    "layers": layers,
    "longer": longer,
    "masks": masks,
    "mimmo": mimmo,
    "mimo": mimo,
    "papers": papers,
    "patching": patching,
    "sae": sae,
    "widths": widths,
}


ON_TEST = ("alphas", "longer", "papers", "widths")
"""Studies that choose nothing, so that they may read test data."""


def test_scores(ensemble: pl.Ensemble, task: Task) -> dict[str, float]:
    """Return scores on test data, also with fitted weights where members are exits of different depths."""
    prediction = ensemble.predict(task.test.x, chunk=1000)
    found = {f"test_{metric}": METRICS[metric](prediction.raw, task.test.y) for metric in SCORES[:3]}
    found["test_calibrated_nll"] = METRICS["nll"](prediction, task.test.y)
    for images in task.ood.values():
        strange = ensemble.predict(images, chunk=1000).raw.entropy
        found["test_auroc_entropy"] = auroc(prediction.raw.entropy, strange)
        found["test_aupr_entropy"] = aupr(prediction.raw.entropy, strange)
    if getattr(ensemble.method, "fit_weights", False):
        found |= exit_scores(prediction.raw, task.test.y)
    elif hasattr(ensemble.method, "fit_weights"):
        ensemble.calibrate(task, weights=True)
        refitted = ensemble.predict(task.test.x, chunk=1000)
        found["test_nll_fitted_weights"] = METRICS["nll"](refitted.raw, task.test.y)
        found["test_calibrated_nll_fitted_weights"] = METRICS["nll"](refitted, task.test.y)
    return found


def exit_scores(prediction: pl.Prediction, target: torch.Tensor) -> dict[str, float]:
    """Return the NLL of exits that count alike, and of each exit alone."""
    count = len(prediction.weights)
    found = {"test_nll_equal_weights": METRICS["nll"](prediction.weighted(torch.ones(count) / count), target)}
    for number, alone in enumerate(torch.eye(count), 1):
        found[f"test_nll_exit_{number}"] = METRICS["nll"](prediction.weighted(alone), target)
    return found


def measure(
    candidate: Candidate, name: str, task: Task, seed: int, steps: int | None = None, on_test: bool = False
) -> dict[str, Any]:
    """Train once and return the validation scores.

    Args:
        candidate: The settings.
        name: Name of the task.
        task: The data.
        seed: Of initial weights and training.
        steps: Of a method without a recipe; None is the default of `Training`.
        on_test: Add scores on test data.
    """
    recipe = candidate.method.recipe()
    if candidate.longer is not None:
        recipe = replace(recipe, longer=candidate.longer)
    size = len(task.train)
    training = Training(seed=seed, check_every=CHECKS[name], steps=steps).following(recipe, size)
    torch.manual_seed(seed)
    model = cnn()
    ensemble = pl.convert(model, candidate.method, example=task.train.x[:2], seed=seed)
    history = train(ensemble, task, training, show=False)
    x, y = task.validation.x, task.validation.y
    prediction = ensemble.predict(x, chunk=1000)
    scores: dict[str, Any] = {metric: METRICS[metric](prediction, y) for metric in SCORES[:3]}
    scores["mutual_information"] = prediction.mutual_information.mean().item()
    scores["members"] = len(ensemble.weights)
    scores["steps"] = history[-1]["step"]
    checked = [row for row in history if not math.isnan(row["validation_nll"])]
    scores["best_step"] = min(checked, key=lambda row: row["validation_nll"])["step"]
    scores["last_nll"] = checked[-1]["validation_nll"]
    one = cost(model, x[:1]).multiply_adds
    scores["multiply_adds_ratio"] = cost(ensemble.freeze(), x[:1]).multiply_adds / one
    return scores | (test_scores(ensemble, task) if on_test else {})


def read_runs(study: str) -> list[dict[str, Any]]:
    """Return the runs of a study that are there."""
    path = RESULTS / f"defaults_{study}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(study: str, tasks: list[str], seeds: int, labels: str, steps: int | None) -> list[dict[str, Any]]:
    """Run what is missing, write it, and return all runs of the study."""
    path, runs = RESULTS / f"defaults_{study}.jsonl", read_runs(study)
    for seed in range(seeds):
        for name in tasks:
            task = TASKS[name]()
            for candidate in (Candidate("single", Single()), *STUDIES[study]()):
                known = {"task": name, "label": candidate.label, "seed": seed}
                known |= {"usual_steps": steps} if steps else {}
                done = any(known.items() <= one.items() for one in runs)
                if done or labels not in candidate.label:
                    continue
                found = known | measure(candidate, name, task, seed, steps, study in ON_TEST)
                found["settings"] = candidate.method.to_dict()
                runs.append(found)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(found) + "\n")
    return runs


def main() -> None:
    """Run what is missing, and print a table of means and standard errors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--labels", default="", help="only candidates whose label contains this")
    parser.add_argument("--steps", type=int, help="of a method without a recipe; by default 1000 and more")
    parser.add_argument("--table", action="store_true", help="print a table of test scores, train nothing")
    arguments = parser.parse_args()
    if arguments.table:
        runs = read_runs(arguments.study)
        if arguments.study in ("alphas", "widths"):
            write_means(arguments.study, runs)
        print(table(runs))
        return
    torch.set_num_threads(1)
    runs = run(arguments.study, arguments.tasks, arguments.seeds, arguments.labels, arguments.steps)
    for name in arguments.tasks:
        for label in dict.fromkeys(one["label"] for one in runs if one["task"] == name):
            found = [one for one in runs if one["task"] == name and one["label"] == label]
            print(f"{name:8} {label:32} {_summary(found)}  {len(found)} runs")


def table(runs: list[dict[str, Any]]) -> str:
    """Return test scores in Markdown; an arrow is a difference from one network beyond noise."""
    head = ["method"]
    for name in TASKS:
        head += [f"accuracy, {name} ↑", f"NLL, {name} ↓", f"NLL calibrated, {name} ↓"]
    lines = [f"| {' | '.join(head)} | multiply-adds |", "|---" * (len(head) + 1) + "|"]
    for label in dict.fromkeys(one["label"] for one in runs):
        if any(len(_of(runs, name, label)) < len(_of(runs, name, "single")) for name in TASKS):
            continue  # not all of its seeds are there yet
        cells = [f"`{label}`"]
        for name in TASKS:
            found, single = _of(runs, name, label), _of(runs, name, "single")
            cells.append(f"{fmean(one['test_accuracy'] for one in found):.3f}")
            for metric in ("test_nll", "test_calibrated_nll"):
                values = [one[metric] for one in found]
                error = stdev(values) / math.sqrt(len(values))
                arrow = _beyond_noise(values, [one[metric] for one in single])
                cells.append(f"{fmean(values):.3f} ± {error:.3f}{arrow}")
        cells.append(f"{fmean(one['multiply_adds_ratio'] for one in found):.2f} ×")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_means(study: str, runs: list[dict[str, Any]]) -> None:
    """Write means and standard errors of test scores on digits beside the runs of a study."""
    found: dict[str, dict[str, str]] = {}
    for label in dict.fromkeys(one["label"] for one in runs):
        own = _of(runs, "digits", label)
        for key in [key for key in own[0] if key.startswith("test_")] if len(own) > 1 else []:
            values = [one[key] for one in own]
            error = stdev(values) / math.sqrt(len(values))
            found.setdefault(label, {"seeds": str(len(own))})[key] = f"{fmean(values):.3f}±{error:.3f}"
    path = RESULTS / f"defaults_{study}.json"
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _of(runs: list[dict[str, Any]], name: str, label: str) -> list[dict[str, Any]]:
    """Return the runs of a candidate on a task, by seed."""
    found = [one for one in runs if (one["task"], one["label"]) == (name, label)]
    return sorted(found, key=lambda one: one["seed"])


def _beyond_noise(own: list[float], single: list[float]) -> str:
    """Return an arrow where the paired difference from one network exceeds noise."""
    differences = [one - other for one, other in zip(own, single, strict=True)]
    mean, error = fmean(differences), stdev(differences) / math.sqrt(len(differences))
    if abs(mean) <= LIMIT * error or not any(differences):
        return ""
    return " ↓" if mean < 0 else " ↑"


def _summary(runs: list[dict[str, Any]]) -> str:
    """Return means over seeds, the NLL with its standard error."""
    tested = [key for key in runs[0] if key.startswith("test_")]
    means = "  ".join(f"{key} {fmean(one[key] for one in runs):.4f}" for key in (*SCORES, *tested))
    errors = [one["nll"] for one in runs]
    error = stdev(errors) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
    return f"{means}  ± {error:.4f} NLL"


if __name__ == "__main__":
    main()
