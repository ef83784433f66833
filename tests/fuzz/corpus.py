"""Sound files of every kind that Pluribus reads, made once; cases damage copies of them."""

import contextlib
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

import pluribus as pl
from pluribus.data import two_moons
from pluribus.testbed.cells import Cell
from pluribus.testbed.results import Result, append_results
from tests.small_methods import SMALL

TRAIN = "train --task two_moons --option train=40 --epochs 1 --method batch_ensemble(members=2)"
COMPARE = (
    "compare --task two_moons --option train=40 --epochs 1 --methods single,mc_dropout(draws=2) --seeds 1"
)
SEARCH = (
    "search --task two_moons --option train=40 --epochs 1 --trials 2 --methods single,mc_dropout(draws=2) "
    "--sampler random"
)
FROZEN = ("deep_ensembles", "batch_ensemble", "masksembles", "sae", "emp")
TRAINING = pl.Training(epochs=2, batch=20)


class Stop(Exception):
    """Raised to interrupt a training."""


def network() -> nn.Module:
    """Return the network of the saved ensembles, the same at every call."""
    torch.manual_seed(0)
    middle = [nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2)]
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), *middle, nn.Linear(8, 2))


def inputs(batch: int = 4) -> Tensor:
    """Return inputs of that network."""
    return torch.randn(batch, 2, generator=torch.Generator().manual_seed(0))


def task() -> pl.Task:
    """Return the task of the interrupted training."""
    return two_moons(train=40)


def make(folder: Path, run_line: Any) -> None:
    """Write the corpus.

    Args:
        folder: A new folder.
        run_line: Runs a command line in this process.
    """
    folder.mkdir(parents=True)
    _ensembles(folder / "ensembles")
    _training(folder / "training")
    _weights(folder / "weights")
    _tables(folder)
    _pictures(folder / "pictures")
    _published(folder / "published")
    run_line([*TRAIN.split(), "--out", str(folder / "run")])
    table = ["--task", "csv", "--option", f"path={folder / 'table' / 'table.csv'}", "--option", "target=y"]
    run_line(["train", *table, "--epochs", "1", "--method", "single", "--out", str(folder / "table_run")])
    run_line([*COMPARE.split(), "--workers", "1", "--no-shifted", "--out", str(folder / "compare")])
    run_line([*SEARCH.split(), "--out", str(folder / "search")])
    run_line(["export", str(folder / "run"), "--out", str(folder / "served" / "ensemble.onnx")])
    _frozen(folder / "frozen")
    _adapter(folder / "adapters" / "one")
    _requests(folder / "requests")
    _testbed(folder / "testbed")


def _frozen(folder: Path) -> None:
    for name in FROZEN:
        ensemble = pl.convert(network(), SMALL[name], example=inputs())
        ensemble.calibrate((inputs(40), torch.arange(40) % 2))
        ensemble.freeze().save(folder / name)


def _adapter(folder: Path) -> None:
    folder.mkdir(parents=True)
    document = {"peft_type": "LORA", "r": 2, "lora_alpha": 6, "bias": "none", "alpha_pattern": {"0": 3}}
    (folder / "adapter_config.json").write_text(json.dumps(document))
    matrices = {"0.lora_A": (2, 2), "0.lora_B": (8, 2), "2.0.lora_A": (2, 8), "2.0.lora_B": (8, 2)}
    stored = {f"base_model.model.{name}.weight": torch.randn(shape) for name, shape in matrices.items()}
    save_file(stored, folder / "adapter_model.safetensors")


def _requests(folder: Path) -> None:
    folder.mkdir()
    (folder / "predict.json").write_text(json.dumps({"rows": [[0.5, 1.0], [2, -1]]}))
    tensor = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [0.5, 1.0, 2, -1]}
    document = {"id": "one", "inputs": [tensor], "outputs": [{"name": "probabilities"}], "parameters": {}}
    (folder / "infer.json").write_text(json.dumps(document))


def _testbed(folder: Path) -> None:
    scores = {"code": 0.5, "printed": 0.7}
    curve = {1: scores, 2: scores}
    first = Result("single", Cell(2, 1, 0.1), 0, {"noise": "relative"}, scores, 0.3, curve, curve, 1, 0.1)
    folder.mkdir()
    append_results(folder / "testbed.jsonl", [first, replace(first, seed=1)])


def _ensembles(folder: Path) -> None:
    for name, method in SMALL.items():
        ensemble = pl.convert(network(), method, example=inputs())
        ensemble.save(folder / name)
    calibrated = pl.convert(network(), SMALL["deep_ensembles"], example=inputs())
    calibrated.calibrate((inputs(40), torch.arange(40) % 2))
    calibrated.save(folder / "calibrated")
    ensemble = pl.convert(network(), SMALL["layer_ensembles"], example=inputs())
    ensemble.rank((inputs(), torch.tensor([0, 1, 0, 1])))
    ensemble.shrink([1, 0]).save(folder / "shrunk")


def _training(folder: Path) -> None:
    def stop(row: dict[str, float]) -> None:
        if row["epoch"] == 2:
            raise Stop

    with contextlib.suppress(Stop):
        pl.train(
            pl.convert(network(), SMALL["batch_ensemble"], example=inputs()),
            task(),
            TRAINING,
            out=folder,
            show=False,
            on_epoch=stop,
        )
    assert (folder / "training.pt").is_file()


def _weights(folder: Path) -> None:
    folder.mkdir()
    state = network().state_dict()
    torch.save(state, folder / "weights.pt")
    torch.save({"state_dict": state, "epoch": 3}, folder / "nested.pt")
    save_file(state, folder / "weights.safetensors")


def _tables(folder: Path) -> None:
    rng = np.random.default_rng(0)
    (folder / "table").mkdir()
    lines = ["a,b,when,colour,y"]
    for i in range(40):
        colour = ("red", "green", "")[i % 3]
        lines.append(f"{rng.normal():.3f},{i % 5},2021-0{1 + i % 9}-1{i % 9},{colour},{i % 2}")
    (folder / "table" / "table.csv").write_text("\n".join(lines) + "\n")
    (folder / "inputs").mkdir()
    points = rng.normal(size=(6, 2)).astype(np.float32)
    np.save(folder / "inputs" / "points.npy", points)
    np.savez(folder / "inputs" / "points.npz", x=points)
    rows = "".join(f"{x:.4f},{y:.4f}\n" for x, y in points)
    (folder / "inputs" / "points.csv").write_text("x1,x2\n" + rows)
    (folder / "arrays").mkdir()
    x, y = rng.normal(size=(24, 3)).astype(np.float32), np.arange(24) % 2
    np.savez_compressed(folder / "arrays" / "arrays.npz", x_train=x, y_train=y, x_test=x, y_test=y)


def _pictures(folder: Path) -> None:
    rng = np.random.default_rng(0)
    kinds = {"png": ("L", np.uint8), "tif": ("I;16", np.uint16), "jpg": ("RGB", np.uint8)}
    for ending, (mode, dtype) in kinds.items():
        for name in ("cat", "dog"):
            (folder / ending / name).mkdir(parents=True)
            for i in range(4):
                shape = (6, 6, 3) if mode == "RGB" else (6, 6)
                pixels = rng.integers(0, np.iinfo(dtype).max, shape).astype(dtype)
                Image.fromarray(pixels).save(folder / ending / name / f"{i}.{ending}")


def _published(folder: Path) -> None:
    rng = np.random.default_rng(0)
    (folder / "mnist").mkdir(parents=True)
    for part, count in (("train", 20), ("t10k", 8)):
        images = rng.integers(0, 255, (count, 28, 28)).astype(np.uint8)
        labels = (np.arange(count) % 10).astype(np.uint8)
        for stem, values in (("images-idx3", images), ("labels-idx1", labels)):
            head = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
            path = folder / "mnist" / f"{part}-{stem}-ubyte.gz"
            path.write_bytes(gzip.compress(head + values.tobytes()))
