"""A trained network becomes an ensemble by every method: as it was converted, and after one epoch of tuning.

    PLURIBUS_DATA=... python benchmarks/trained.py [--seeds 3] [--only lora_ensembles,swag] [--explore]
    PLURIBUS_DATA=... python benchmarks/trained.py --as-it-is
    PLURIBUS_DATA=... python benchmarks/trained.py --longer
    python benchmarks/trained.py --table

A CNN is trained on 1500 images of Fashion-MNIST at 14 × 14 pixels. Then every method gets the trained
network, first with its defaults and no training, where it must predict as `on_trained` promises, and then as
`finetune` has it, tuned for one epoch on the same 1500 images. Methods that do not keep a network
get one epoch too, to show that it is not enough. Digits of MNIST are out of distribution. `--explore` runs
the settings among which the defaults for trained networks were chosen, by validation data. `--as-it-is`
measures what needs no training: the network alone and, trained with dropout, its own dropout kept on, each
raw and calibrated on the 500 validation images. `--longer` measures what `finetune` does when nothing is
said, five epochs of which the best is kept, raw and calibrated, and four networks that were trained from
scratch. Runs that are done are not run again. `--table` prints the rows of the page from the results.
"""

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

import pluribus as pl
from pluribus import data, methods
from pluribus.backbones import cnn
from pluribus.comparison.calibrated import measure_calibration
from pluribus.comparison.finetuning import usual_training, warm_start
from pluribus.data.split import Split
from pluribus.data.task import Task
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.metrics import METRICS
from pluribus.metrics.ood import auroc
from pluribus.training import Training, train

RESULT = Path(__file__).parent / "results" / "trained.json"
TRAIN, VALIDATION, TEST, STRANGE = 1500, 500, 1000, 500
FIRST = Training(epochs=30, lr=3e-3, batch=64)
"""How the network is trained before it becomes an ensemble."""
DROPOUT = 0.2
"""Rate after each stage of the network that is trained with dropout."""


@dataclass(frozen=True)
class Run:
    """A method and how it is tuned; None is what `finetune` does."""

    method: pl.Method
    training: Training | None = None


def halved(images: torch.Tensor) -> torch.Tensor:
    """Average squares of 2 × 2 pixels."""
    return nn.functional.avg_pool2d(images, 2)


def load() -> Task:
    """Return the data."""
    task = data.load_task("fashion_mnist", train=TRAIN, validation=VALIDATION, test=TEST)
    parts = {}
    for name in ("train", "validation", "test"):
        split = getattr(task, name)
        parts[name] = Split(halved(split.x), split.y)
    return replace(task, **parts, shifted={}, ood={"mnist": halved(task.ood["mnist"][:STRANGE])})


def every_method() -> dict[str, Run]:
    """Return all methods with their defaults, and few draws."""
    found = {}
    for name in methods.__all__:
        method = getattr(methods, name)()
        if getattr(method, "draws", 0) > 16:
            method = replace(method, draws=16)
        found[method.kind()] = Run(method)
    return found


def explored() -> dict[str, Run]:
    """Return the settings among which those for trained networks were chosen."""
    found = {}
    for far in (0.01, 0.1, 0.2, 0.3, 0.5):
        found[f"emp, {far:g} apart"] = Run(methods.EMP(draws=16, perturbation=far))
    for lr in (1e-3, 3e-3, 1e-2):
        tuning = Training(epochs=1, lr=lr, optimizer="adamw")
        found[f"lora, lr {lr:g}"] = Run(methods.LoRAEnsembles(shuffle_members=False), tuning)
        found[f"lora, own orders, lr {lr:g}"] = Run(methods.LoRAEnsembles(shuffle_members=True), tuning)
        found[f"swag, falling lr {lr:g}"] = Run(methods.SWAG(), tuning)
        constant = replace(tuning, schedule="constant")
        found[f"swag, constant lr {lr:g}"] = Run(methods.SWAG(), constant)
    copies = {
        "copies": methods.DeepEnsembles(),
        "copied tails": methods.DeepSubEnsembles(),
        "copied options": methods.LayerEnsembles(draws=16),
        "adapters": methods.LoRAEnsembles(),
    }
    for lr in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2):
        for name, method in copies.items():
            tuning = Training(epochs=1, lr=lr, optimizer="adamw")
            found[f"{name} at {lr:g}"] = Run(method, tuning)
    for std in (0.05, 0.1, 0.2):
        found[f"batch, std {std:g}"] = Run(methods.BatchEnsemble(std=std))
    for deviation in (0.05, 0.1, 0.2):
        found[f"hypermodel, deviation {deviation:g}"] = Run(methods.Hypermodel(deviation=deviation))
    return found


def measured(ensemble: pl.Ensemble, task: Task, alone: torch.Tensor) -> dict[str, float]:
    """Return scores of an ensemble, and how far its members are from the network.

    Args:
        ensemble: In eval mode.
        task: The data.
        alone: Probabilities of the network on the test data.
    """
    prediction = ensemble.eval().predict(task.test.x, chunk=500)
    strange = ensemble.predict(task.ood["mnist"], chunk=500)
    far = (prediction.member_probabilities - alone).abs().amax().item()
    return {
        **{name: float(METRICS[name](prediction, task.test.y)) for name in ("accuracy", "nll", "ece")},
        "mutual_information": prediction.mutual_information.mean().item(),
        "auroc": float(auroc(prediction.entropy, strange.entropy)),
        "agreement": (prediction.labels == alone.argmax(1)).double().mean().item(),
        "farthest_probability": far,
        "parameters": float(sum(p.numel() for p in ensemble.parameters())),
    }


def with_dropout() -> nn.Module:
    """Return the network with dropout after each stage."""
    network = cnn(width=16)
    for name, stage in network.named_children():
        if name.startswith("layer"):
            assert isinstance(stage, nn.Sequential)
            stage.append(nn.Dropout(DROPOUT))
    return network


def trained_network(
    task: Task, seed: int, build: Callable[[], nn.Module] = lambda: cnn(width=16)
) -> nn.Module:
    """Return a trained network."""
    with seeded(seed):
        network = build()
    single = pl.convert(network, methods.Single(), example=task.train.x[:2], seed=seed)
    train(single, task, replace(FIRST, seed=seed), show=False, calibrate=False)
    return single.member(0)


def run_method(network: nn.Module, run: Run, task: Task, seed: int) -> dict[str, object]:
    """Return what a method makes of the network, before and after an epoch of tuning."""
    example = task.train.x[:2]
    with torch.no_grad():
        alone = network.eval()(task.test.x).softmax(1)
    untuned = pl.convert(copy.deepcopy(network), run.method, example=example, seed=seed)
    untuned.after_step(1.0)  # SWAG looks at the weights as they are
    untuned.finish([task.train.x])
    found: dict[str, object] = {
        "method": str(run.method),
        "promise": untuned.conversion.on_trained,
        "converted": measured(untuned, task, alone),
    }

    method = warm_start(run.method, None)
    training = run.training or replace(usual_training(method), epochs=1)
    tuned = pl.convert(copy.deepcopy(network), method, example=example, seed=seed)
    # The last weights: a tuning that makes the network worse must show it.
    training = replace(training, seed=seed, keep="last")
    train(tuned, task, training, show=False, calibrate=False)
    validation = float(METRICS["nll"](tuned.predict(task.validation.x), task.validation.y))
    found |= {
        "tuned as": str(method),
        "tuned promise": tuned.conversion.on_trained,
        "lr": training.lr,
        "schedule": training.schedule,
        "tuned": measured(tuned, task, alone) | {"validation_nll": validation},
    }
    return found


def measure_as_it_is(task: Task, seed: int) -> list[dict[str, object]]:
    """Return scores of networks that are not tuned, raw and calibrated on validation data."""
    networks = {
        "without dropout": trained_network(task, seed),
        "with dropout": trained_network(task, seed, with_dropout),
    }
    found: list[dict[str, object]] = []
    for name, network in networks.items():
        with torch.no_grad():
            alone = network.eval()(task.test.x).softmax(1)
        for method in (methods.Single(), methods.MCDropout()):
            ensemble = pl.convert(copy.deepcopy(network), method, example=task.train.x[:2], seed=seed).eval()
            scores = raw_and_calibrated(ensemble, task, alone)
            found.append({"seed": seed, "network": name, "method": str(method), **scores})
    return found


def raw_and_calibrated(ensemble: pl.Ensemble, task: Task, alone: torch.Tensor) -> dict[str, object]:
    """Return scores of an ensemble as it is, and calibrated on validation data."""
    ensemble.calibration = None
    raw = measured(ensemble, task, alone)
    ensemble.calibrate(task)
    calibrated = measured(ensemble, task, alone)
    calibrated |= measure_calibration(ensemble.predict(task.test.x, chunk=500), task.test.y)
    return {"raw": raw, "calibrated": calibrated}


def measure_longer(task: Task, seed: int) -> list[dict[str, object]]:
    """Return scores of networks that `finetune` tuned with its own settings, and of networks from scratch."""
    network, example = trained_network(task, seed), task.train.x[:2]
    with torch.no_grad():
        alone = network.eval()(task.test.x).softmax(1)
    as_it_is = pl.convert(copy.deepcopy(network), methods.Single(), example=example, seed=seed).eval()
    found = [{"seed": seed, "name": "network", **raw_and_calibrated(as_it_is, task, alone)}]
    wanted = {"from scratch": methods.DeepEnsembles()}
    for name in ("single", "deep_ensembles", "lora_ensembles", "swag", "emp", "laplace"):
        wanted[name] = warm_start(every_method()[name].method, None)
    for name, method in wanted.items():
        ensemble = pl.convert(copy.deepcopy(network), method, example=example, seed=seed)
        training = FIRST if name == "from scratch" else usual_training(method)
        train(ensemble, task, replace(training, seed=seed), show=False, calibrate=False)
        scores = raw_and_calibrated(ensemble.eval(), task, alone)
        found.append({"seed": seed, "name": name, "method": str(method), **scores})
    return found


def pending(wanted: dict[str, Run], seeds: int, done: list[dict]) -> Iterator[tuple[int, str]]:
    """Yield seeds and names that have no result yet."""
    known = {(one["seed"], one["name"], one["method"]) for one in done}
    for seed in range(seeds):
        for name, run in wanted.items():
            if (seed, name, str(run.method)) not in known:
                yield seed, name


def stored() -> dict:
    """Return the document of results, empty where there is none."""
    if not RESULT.is_file():
        return {"command": "python benchmarks/trained.py", "runs": []}
    return json.loads(RESULT.read_text(encoding="utf-8"))


def means(runs: list[dict]) -> dict[str, dict[str, str]]:
    """Return mean ± standard error over seeds of every number, by name and stage."""
    found = dict[str, dict[str, str]]()
    for name in dict.fromkeys(one["name"] for one in runs):
        same = [one for one in runs if one["name"] == name]
        for stage in ("converted", "tuned"):
            of = found[f"{name}, {stage}"] = {}
            for metric in same[0][stage]:
                values = torch.tensor([one[stage][metric] for one in same], dtype=torch.float64)
                error = values.std().item() / len(values) ** 0.5 if len(values) > 1 else 0.0
                of[metric] = (
                    f"{values.mean().item():.3f}±{error:.3f}" if len(values) > 1 else f"{values[0]:.3f}"
                )
    return found


def write(document: dict) -> None:
    """Write the document of results."""
    RESULT.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def shown(values: list[float], digits: int = 3) -> str:
    """Return mean ± standard error, or the mean of one value."""
    of = torch.tensor(values, dtype=torch.float64)
    error = f" ± {of.std().item() / len(of) ** 0.5:.{digits}f}" if len(of) > 1 else ""
    return f"{of.mean().item():.{digits}f}{error}"


def rows_of_methods(runs: list[dict]) -> Iterator[str]:
    """Yield the rows of the table of all methods."""
    words = {"kept": "kept", "approximate": "nearly kept", "retrain": "to be trained"}
    alone = {one["seed"]: one["converted"] for one in runs if one["name"] == "single"}
    for name in dict.fromkeys(one["name"] for one in runs if one["name"] in every_method()):
        own = [one for one in runs if one["name"] == name]
        after = [one["tuned"] for one in own]
        change = [one["tuned"]["nll"] - alone[one["seed"]]["nll"] for one in own]
        size = after[0]["parameters"] / alone[own[0]["seed"]]["parameters"]
        cells = [
            type(every_method()[name].method).__name__,
            words[own[0]["promise"]],
            shown([one["converted"]["nll"] for one in own]).split(" ")[0],
            words[own[0]["tuned promise"]],
            *(shown([one[metric] for one in after]).split(" ")[0] for metric in ("accuracy", "nll")),
            ("+" * (sum(change) >= 0) + shown(change)).replace("-", "−"),
            shown([one["ece"] for one in after]).split(" ")[0],
            shown([one["mutual_information"] for one in after], 4).split(" ")[0],
            f"{size:.2f}",
        ]
        yield f"| {' | '.join(cells)} |"


def rows_of_longer(runs: list[dict]) -> Iterator[str]:
    """Yield the rows of the table of five epochs: raw and calibrated scores."""
    for name in dict.fromkeys(one["name"] for one in runs):
        own = [one for one in runs if one["name"] == name]
        raw, calibrated = [one["raw"] for one in own], [one["calibrated"] for one in own]
        cells = [name, shown([one["accuracy"] for one in raw])]
        for metric in ("nll", "ece"):
            cells.append(shown([one[metric] for one in raw]))
            cells.append(shown([one[f"scaled_{metric}"] for one in calibrated]))
        cells.append(shown([one["mutual_information"] for one in raw], 4).split(" ")[0])
        yield f"| {' | '.join(cells)} |"


def run_study(name: str, measure: Callable[[Task, int], list[dict[str, object]]], seeds: int) -> None:
    """Run a study for seeds that are not done.

    Args:
        name: Of its list in the results.
        measure: Return the runs of a seed.
        seeds: How many.
    """
    task = load()
    done = {one["seed"] for one in stored().get(name, [])}
    for seed in sorted(set(range(seeds)) - done):
        found = measure(task, seed)
        document = stored()
        document.setdefault(name, []).extend(found)
        write(document)
        for one in found:
            print(*one.values(), flush=True)


def main() -> None:
    """Run what is not done yet, and write after every run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--explore", action="store_true")
    parser.add_argument("--as-it-is", action="store_true")
    parser.add_argument("--longer", action="store_true")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.table:
        print(*rows_of_methods(stored()["runs"]), *rows_of_longer(stored().get("longer", [])), sep="\n")
        return
    if given.as_it_is:
        run_study("as it is", measure_as_it_is, given.seeds)
        return
    if given.longer:
        run_study("longer", measure_longer, given.seeds)
        return
    wanted = explored() if given.explore else every_method()
    if given.only:
        wanted = {name: wanted[name] for name in given.only.split(",")}
    task, networks = load(), dict[int, nn.Module]()
    for seed, name in list(pending(wanted, given.seeds, stored()["runs"])):
        if seed not in networks:
            networks = {seed: trained_network(task, seed)}
        found = run_method(networks[seed], wanted[name], task, seed)
        # Read again: another process may have stored runs meanwhile.
        document = stored()
        document["runs"].append({"seed": seed, "name": name, **found})
        document["means"] = means(document["runs"])
        write(document)
        print(seed, name, found["converted"]["nll"], found["tuned"], flush=True)


if __name__ == "__main__":
    main()
