"""Packed-Ensembles beside their baselines on Fashion-MNIST, with MNIST and KMNIST out of distribution.

    PLURIBUS_DATA=... python benchmarks/packed_fashion_mnist.py

ResNet-18 of half the width with the ImageNet stem, 2000 training images, 12 epochs, three seeds, two
single-threaded workers: a small setting, for a machine with two cores. Chosen once, before any result was
seen. The last weights are kept. Differences are judged by the paired bootstrap of the report.
"""

import json
from functools import partial
from pathlib import Path

import torch

from pluribus.backbones import resnet18
from pluribus.comparison import compare
from pluribus.comparison.record import read
from pluribus.data import load_task
from pluribus.methods import BatchEnsemble, DeepEnsembles, MCDropout, PackedEnsembles, Single
from pluribus.report.columns import columns_of
from pluribus.report.groups import group_records
from pluribus.report.noise import difference
from pluribus.report.page import write_page
from pluribus.report.tables import make_table
from pluribus.report.terminal import print_table
from pluribus.training import Training

OUT = Path("pluribus_runs/packed_fashion_mnist")
RESULT = Path(__file__).parent / "results" / "packed_fashion_mnist.json"
TRAINING = Training(epochs=12, batch=64, lr=3e-3, keep="last")
METHODS = [Single(), PackedEnsembles(members=4, alpha=2.0), DeepEnsembles(4), BatchEnsemble(4), MCDropout()]
METRICS = ("accuracy", "nll", "ece", "ood_auroc", "parameters", "multiply_adds")


def main() -> None:
    """Runs, or goes on with, the comparison, writes its report, and keeps its numbers."""
    torch.set_num_threads(1)
    task = load_task("fashion_mnist", train=2000, validation=200, test=5000)
    build = partial(resnet18, in_channels=1, stem="imagenet", width=32)
    settings = {"training": TRAINING, "network": "resnet18 of half the width", "workers": 2}
    compare(build, task, METHODS, out=OUT, shifted=False, **settings)
    (group,) = group_records(read([OUT], outcomes=True))
    print_table(make_table(group), group.title)
    write_page(OUT, [group])
    columns = {column.name: column for column in columns_of(group)}
    packed = next(entry for entry in group.entries if entry.kind == "packed_ensembles")
    result = {
        "command": "python benchmarks/packed_fashion_mnist.py",
        "task": f"{group.task}: {group.sizes}",
        "training": TRAINING.to_dict(),
        "means": {
            entry.label: {name: columns[name].cell(entry).show(3) for name in METRICS}
            for entry in group.entries
        },
        "packed less the other, with its 95 % interval": {
            entry.label: {
                metric: [round(value, 4) for value in (gap.value, gap.low, gap.high)]
                for metric in ("accuracy", "nll", "ece")
                if (gap := difference(packed, entry, metric)) is not None
            }
            for entry in group.entries
            if entry is not packed
        },
        "versions": packed.runs[0].versions,
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
