"""Masksembles of several scales beside their baselines on Fashion-MNIST and corruptions of it.

    PLURIBUS_DATA=... python benchmarks/masksembles_fashion_mnist.py

Figures 6 and 8 of the paper with a small network: WRN-10-2, 1500 training images, 10 epochs, 400 test images
and five kinds of corruption, four members or draws, three seeds, two single-threaded workers. Chosen once,
before any result was seen. The last weights are kept.
"""

import json
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from pluribus.backbones import wide_resnet
from pluribus.comparison import compare
from pluribus.comparison.record import read
from pluribus.data import load_task
from pluribus.methods import DeepEnsembles, Masksembles, MCDropout, Single
from pluribus.report.columns import columns_of
from pluribus.report.groups import Entry, group_records
from pluribus.report.page import write_page
from pluribus.report.tables import make_table
from pluribus.report.terminal import print_table
from pluribus.training import Training

OUT = Path("pluribus_runs/masksembles_fashion_mnist")
RESULT = Path(__file__).parent / "results" / "masksembles_fashion_mnist.json"
TRAINING = Training(epochs=10, batch=64, lr=3e-3, keep="last")
METHODS = [
    Single(),
    MCDropout(rate=0.1, draws=4),
    *(Masksembles(members=4, scale=scale) for scale in (1.1, 2.0, 3.0)),
    DeepEnsembles(4),
]
KINDS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
METRICS = ("accuracy", "nll", "ece", "parameters")


def by_severity(entry: Entry, metric: str) -> list[float]:
    """The mean over kinds and seeds at each severity."""
    return [
        round(
            statistics.mean(
                values[metric]
                for run in entry.runs
                for name, values in run.shifted.items()
                if name.endswith(f"/{severity}")
            ),
            4,
        )
        for severity in range(1, 6)
    ]


def main() -> None:
    """Runs, or goes on with, the comparison, writes its report, and keeps its numbers."""
    torch.set_num_threads(1)
    task = load_task("fashion_mnist", train=1500, validation=200, test=400)
    few = {name: images[:400] for name, images in task.ood.items()}
    task = replace(task, shifted=replace(task.shifted, kinds=KINDS), ood=few)
    build = partial(wide_resnet, 10, 2, in_channels=1)
    compare(build, task, METHODS, out=OUT, training=TRAINING, network="WRN-10-2", workers=2)
    (group,) = group_records(read([OUT], outcomes=True))
    print_table(make_table(group), group.title)
    write_page(OUT, [group])
    columns = {column.name: column for column in columns_of(group)}
    result = {
        "command": "python benchmarks/masksembles_fashion_mnist.py",
        "task": f"{group.task}: {group.sizes}",
        "corruptions": KINDS,
        "training": TRAINING.to_dict(),
        "means": {
            entry.label: {name: columns[name].cell(entry).show(3) for name in METRICS}
            for entry in group.entries
        },
        "by severity, 1 to 5": {
            metric: {entry.label: by_severity(entry, metric) for entry in group.entries}
            for metric in ("ece", "accuracy")
        },
        "versions": group.entries[0].runs[0].versions,
    }
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
