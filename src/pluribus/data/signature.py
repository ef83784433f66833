"""What a trained network takes and gives: all of a task that prediction needs, without any of its samples."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from pluribus.data.column_record import columns_from_dict, columns_to_dict
from pluribus.data.columns import Columns
from pluribus.data.limits import check_bytes, check_file
from pluribus.data.scaling import Scaling
from pluribus.data.sources import UNREADABLE
from pluribus.data.task import Task, in_units, named_columns
from pluribus.errors import CheckpointError
from pluribus.prediction import Prediction

FILE = "signature.json"
VERSION = 1
MOST_AXES = 8
MOST_FILE_BYTES = 2**28
"""Size of the file; a table of 100,000 columns takes about 20 MB."""


@dataclass(frozen=True, eq=False)
class Signature:
    """Inputs and outputs of a trained network.

    Args:
        name: Of the task.
        input_shape: Shape of one input.
        outputs: Numbers that the network gives for a sample.
        classes: How many classes; None where numbers are predicted.
        class_names: Their names in order, or none.
        scaling: Brings raw inputs into the form that the network takes.
        target_scaling: What was done to the targets.
        feature_names: Of the numbers of an input, or none.
        low: Least training input, of each feature or channel.
        high: Greatest training input, of each feature or channel.
        columns: How cells of a table become inputs, where the task is a table.
        delimiter: Between the cells of a CSV file.
    """

    name: str
    input_shape: tuple[int, ...]
    outputs: int
    classes: int | None
    class_names: tuple[str, ...]
    scaling: Scaling
    target_scaling: Scaling
    feature_names: tuple[str, ...]
    low: Tensor
    high: Tensor
    columns: Columns | None = None
    delimiter: str = ","

    @classmethod
    def of(cls, task: Task, delimiter: str = ",") -> "Signature":
        """Return the signature of a task."""
        x = task.train.x
        over = tuple(axis for axis in range(x.ndim) if axis != 1)  # features and channels lie on axis 1
        return cls(
            task.name,
            task.input_shape,
            task.outputs,
            task.classes,
            task.class_names,
            task.scaling,
            task.target_scaling,
            task.feature_names,
            x.amin(over),
            x.amax(over),
            task.columns,
            delimiter,
        )

    def example(self, count: int = 2) -> Tensor:
        """Return standard normal inputs: no sample of the training data is handed over."""
        return torch.randn(count, *self.input_shape, generator=Generator().manual_seed(0))

    def prepare(self, raw: Tensor) -> Tensor:
        """Return raw inputs `[count, ...]` in the form that the network takes."""
        return self.scaling.apply(raw)

    def table(self, prediction: Prediction) -> dict[str, list[Any]]:
        """Return the columns of a prediction in the units of the data, with classes by their names."""
        return named_columns(in_units(prediction, self.target_scaling), self.class_names, self.classes)

    def save(self, folder: Path) -> None:
        """Write the signature into the folder of a run."""
        text = json.dumps(self.to_dict(), allow_nan=False)
        (folder / FILE).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Signature":
        """Return the signature of a run; raise CheckpointError where it is damaged."""
        path = folder / FILE
        check_file(path)
        check_bytes(str(path), path.stat().st_size, MOST_FILE_BYTES)
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except UNREADABLE as error:
            raise CheckpointError(f"{path} must be a JSON file, got a damaged one. Train again.") from error
        return cls.from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """Return a value that JSON can hold."""
        return {
            "version": VERSION,
            "name": self.name,
            "input_shape": list(self.input_shape),
            "outputs": self.outputs,
            "classes": self.classes,
            "class_names": list(self.class_names),
            "scaling": _scaling_to_dict(self.scaling),
            "target_scaling": _scaling_to_dict(self.target_scaling),
            "feature_names": list(self.feature_names),
            "low": self.low.double().tolist(),
            "high": self.high.double().tolist(),
            "columns": None if self.columns is None else columns_to_dict(self.columns),
            "delimiter": self.delimiter,
        }

    @classmethod
    def from_dict(cls, values: object) -> "Signature":
        """Return the signature that `to_dict` wrote; raise CheckpointError for anything else."""
        read = Fields(FILE, values)
        read.check("version", read.get("version", int) == VERSION, f"{VERSION}")
        shape = read.numbers("input_shape", int)
        read.check("input_shape", 0 < len(shape) <= MOST_AXES and min(shape) > 0, "positive sizes")
        classes = None if read.get("classes", int | None) is None else read.count("classes")
        names = read.words("class_names")
        read.check("class_names", len(names) in (0, classes), "one for each class")
        features = read.words("feature_names")
        read.check(
            "feature_names", not features or shape == [len(features)], "one for each number of an input"
        )
        low, high = read.numbers("low"), read.numbers("high")
        read.check("low", len(low) == len(high) == shape[0], "a number for each feature or channel")
        columns = read.get("columns", dict | None)
        return cls(
            name=read.get("name", str),
            input_shape=tuple(shape),
            outputs=read.count("outputs"),
            classes=classes,
            class_names=names,
            scaling=_scaling_from_dict("scaling", read.get("scaling", dict), shape),
            target_scaling=_scaling_from_dict("target_scaling", read.get("target_scaling", dict), None),
            feature_names=features,
            low=torch.tensor(low),
            high=torch.tensor(high),
            columns=None if columns is None else _fitting(columns_from_dict(columns), features),
            delimiter=read.get("delimiter", str),
        )


class Fields:
    """Fields of a JSON object from a file, each checked when it is read.

    Args:
        where: Name of the file in error messages.
        values: Contents of the file.
    """

    def __init__(self, where: str, values: object) -> None:
        if not isinstance(values, dict):
            raise CheckpointError(f"{where} must hold a JSON object, got another value. Train again.")
        self.where, self.values = where, values

    def check(self, name: str, holds: bool, expected: str) -> None:
        """Raise for a field that is not as expected."""
        if not holds:
            raise CheckpointError(f"{name} of {self.where} must be {expected}. Train again.")

    def get(self, name: str, kind: Any) -> Any:
        """Return a field of a type."""
        value = self.values.get(name, KeyError)
        fits = isinstance(value, kind) and not isinstance(value, bool)  # True is an int of Python
        self.check(name, fits, f"of type {getattr(kind, '__name__', kind)}")
        return value

    def count(self, name: str) -> int:
        """Return a whole number from 1 on."""
        value: int = self.get(name, int)
        self.check(name, value > 0, "at least 1")
        return value

    def numbers(self, name: str, kind: type = float) -> list[Any]:
        """Return a list of finite numbers, or of whole ones."""
        found: list[Any] = self.get(name, list)
        allowed = (int,) if kind is int else (int, float)
        self.check(name, all(type(n) in allowed and math.isfinite(n) for n in found), "finite numbers")
        return found

    def words(self, name: str) -> tuple[str, ...]:
        """Return a list of words."""
        found: list[Any] = self.get(name, list)
        self.check(name, all(isinstance(word, str) for word in found), "words")
        return tuple(found)


def _scaling_to_dict(scaling: Scaling) -> dict[str, Any]:
    flat = {
        name: part.double().flatten().tolist()
        for name, part in (("mean", scaling.mean), ("std", scaling.std))
    }
    return {"shape": list(scaling.mean.shape), **flat}


def _scaling_from_dict(name: str, values: object, shape: list[int] | None) -> Scaling:
    """Return a scaling; its shape must broadcast to that of a sample, where that is known."""
    read = Fields(f"{name} of {FILE}", values)
    own = read.numbers("shape", int)
    mean, std = read.numbers("mean"), read.numbers("std")
    read.check("shape", len(own) <= MOST_AXES and min(own, default=1) > 0, "positive sizes")
    read.check("mean", len(mean) == len(std) == math.prod(own), "as many numbers as the shape has")
    read.check("std", min(std) > 0, "above 0")
    if shape is not None:
        pairs = zip(own[::-1], shape[::-1], strict=False)
        fits = len(own) <= len(shape) and all(size in (1, whole) for size, whole in pairs)
        read.check("shape", fits, f"one that extends to {shape}")
    parts = (torch.tensor(part, dtype=torch.float64).reshape(own) for part in (mean, std))
    return Scaling(*parts)


def _fitting(columns: Columns, features: tuple[str, ...]) -> Columns:
    """Return the columns; raise where they do not make the features of the network."""
    if columns.features != features:
        raise CheckpointError(f"columns of {FILE} must make the features of the network. Train again.")
    return columns
