"""Files of real ensembles: the server answers what `pluribus predict` answers in PyTorch."""

import asyncio
import csv
import json
import random

import numpy as np
import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.data import Signature, csv_file
from pluribus.methods import DeepEnsembles
from pluribus.serving.exported import Exported
from pluribus.serving.options import ServerOptions
from pluribus.serving.service import Service

pytestmark = pytest.mark.slow
ROWS = [{"age": 70, "city": "Rome"}, {"age": None, "city": "Paris"}, {"age": 20.5, "city": "Oslo"}]


def write_table(path, target):
    random.seed(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "city", "y"])
        for number in range(400):
            age, city = random.gauss(50, 15), random.choice(["Bonn", "Oslo", "Rome"])
            writer.writerow(["" if number % 20 == 0 else f"{age:.1f}", city, target(age, city)])


def trained(task, outputs):
    network = nn.Sequential(nn.Linear(task.input_shape[0], 16), nn.ReLU(), nn.Linear(16, outputs))
    ensemble = pl.convert(
        network, DeepEnsembles(members=2), example=task.train.x[:2], likelihood=task.likelihood
    )
    pl.train(ensemble, task, pl.Training(steps=60), show=False)
    return ensemble


def answers(path, rows):
    """Return the answers of a server to rows."""

    async def main():
        service = Service(Exported(path, 1), ServerOptions(), "m")
        service.batcher.start()
        answer = await service.predict(json.dumps({"rows": rows}).encode())
        await service.batcher.drain()
        return json.loads(answer)["predictions"], service

    return asyncio.run(main())


def in_torch(ensemble, task):
    """Return the table of `pluribus predict` for the same rows."""
    signature = Signature.of(task)
    cells = {name: [row[name] for row in ROWS] for name in ("age", "city")}
    raw = torch.from_numpy(signature.columns.encode(cells).values)
    return signature.table(ensemble.predict(signature.prepare(raw)))


def test_classes_of_a_table(tmp_path):
    write_table(tmp_path / "t.csv", lambda age, city: "yes" if age > 50 and city != "Oslo" else "no")
    task = csv_file(tmp_path / "t.csv", target="y")
    ensemble = trained(task, task.outputs)
    path = ensemble.export(tmp_path / "m.onnx", signature=Signature.of(task))
    found, service = answers(path, ROWS)
    table = in_torch(ensemble, task)
    assert [one["label"] for one in found] == table["labels"]
    for name in ("confidence", "entropy", "mutual_information", "ood_score"):
        np.testing.assert_allclose([one[name] for one in found], table[name], rtol=1e-4, atol=1e-5)
    assert [one["flagged"] for one in found] == table["flagged"]
    assert [" | ".join(one["set"]) for one in found] == table["set"]
    assert "unseen city=Paris" in found[1]["note"]
    assert service.monitor.samples == 3
    reference = ensemble.calibration.reference
    np.testing.assert_allclose(service.exported.description["reference_scores"], reference, rtol=1e-6)


def test_numbers_of_a_table_are_in_its_units(tmp_path):
    write_table(tmp_path / "t.csv", lambda age, city: f"{1000 + 10 * age + random.gauss(0, 20):.2f}")
    task = csv_file(tmp_path / "t.csv", target="y")
    ensemble = trained(task, task.outputs)
    path = ensemble.export(tmp_path / "m.onnx", signature=Signature.of(task))
    found, _ = answers(path, ROWS)
    table = in_torch(ensemble, task)
    for served, column in (("mean", "mean"), ("std", "std"), ("lower", "low"), ("upper", "high")):
        wanted = next(values for name, values in table.items() if name == column or name == f"{column}_0")
        np.testing.assert_allclose([one[served] for one in found], wanted, rtol=1e-3)


def test_maps_of_images_are_labels_and_means(tmp_path):
    network = nn.Conv2d(1, 3, 3, padding=1)
    ensemble = pl.convert(network, DeepEnsembles(members=2), example=torch.randn(2, 1, 6, 6))
    path = ensemble.export(tmp_path / "m.onnx", dynamic={"input": {2: "height", 3: "width"}})
    x = torch.randn(1, 1, 5, 7)
    (found,), service = answers(path, x.tolist())
    prediction = ensemble.eval().predict(x)
    assert found["label"] == prediction.labels[0].tolist()
    assert found["mean_entropy"] == pytest.approx(prediction.entropy.mean().item(), rel=1e-4)
    assert service.exported.batches
