"""The signature of a trained network: everything of a task that prediction needs, without its samples."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from pluribus.data.column_record import SCHEMA as COLUMNS
from pluribus.data.column_record import columns_from_dict, columns_to_dict
from pluribus.data.columns import Columns
from pluribus.data.input_spec import TYPES, InputSpec
from pluribus.data.scaling import Scaling
from pluribus.data.task import Task, in_units, named_columns
from pluribus.errors import CheckpointError
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.prediction import Prediction
from pluribus.schema import Fields, Items, Number, Optional, Schema, Text, Whole
from pluribus.untrusted import read_json
from pluribus.writing import replacing

FILE = "signature.json"
VERSION = 2
LEAST_VERSION = 1
"""Signatures of version 1 have one input."""
SAMPLES = 256
"""Samples of a stream from which the range of inputs is read."""
ONLY = "x"
"""Name of the only input of a network, and beginning of the names of several positional ones."""
MOST_NUMBERS = 2**28
"""Numbers of one input."""
DENSE_AXES = 3
"""Axes of outputs with one row for each sample: members, samples, outputs."""
MEANS = ("confidence", "entropy", "mutual_information", "mean", "std")
"""Summaries of dense predictions that are averaged over positions."""
REMEDY = "Train again with `pluribus train`."
SIZES = Items(Whole(0), most=8)
NUMBERS = Items(Number(finite=True))
SCALING = Fields({"shape": SIZES, "mean": NUMBERS, "std": NUMBERS})
SCHEMA: Schema = Fields(
    {
        "version": Whole(LEAST_VERSION, VERSION),
        "name": Text(),
        "input_shape": SIZES,
        "outputs": Whole(1),
        "classes": Optional(Whole(2)),
        "class_names": Items(Text()),
        "scaling": SCALING,
        "target_scaling": SCALING,
        "feature_names": Items(Text()),
        "low": NUMBERS,
        "high": NUMBERS,
        "columns": Optional(COLUMNS),
        "delimiter": Text(),
    },
    {"inputs": Items(Fields({"key": Text(), "shape": Items(Whole(0), most=8), "dtype": Text()}), most=64)},
)


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
        target_scaling: Brought the targets into the form that the network learnt.
        feature_names: Of the numbers of an input, or none.
        low: Least training input of each feature or channel, scaled.
        high: Greatest training input of each feature or channel, scaled.
        columns: How cells of a table become inputs, where the task is a table.
        delimiter: Between the cells of a CSV file.
        inputs: Name, shape and type of each input; of networks with one input, none or that one.
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
    inputs: tuple[InputSpec, ...] = ()

    @classmethod
    def of(cls, task: Task, delimiter: str = ",", forward: Callable[..., Any] | None = None) -> "Signature":
        """Return the signature of a task.

        Args:
            task: The data.
            delimiter: Between the cells of a CSV file.
            forward: Of the network; entries of samples that it does not accept are no inputs.
        """
        low, high = _ranges(task)
        return cls(
            name=task.name,
            input_shape=task.input_shape,
            outputs=task.outputs,
            classes=task.classes,
            class_names=task.class_names,
            scaling=task.scaling,
            target_scaling=task.target_scaling,
            feature_names=task.feature_names,
            low=low,
            high=high,
            columns=task.columns,
            delimiter=delimiter,
            inputs=_specs(task, forward),
        )

    @property
    def has_several_inputs(self) -> bool:
        """Return whether the network takes more than one tensor, or takes it by name."""
        return len(self.inputs) > 1 or any(not _is_positional(one.key) for one in self.inputs)

    @property
    def codes(self) -> dict[int, int]:
        """Return the number of categories of each input that is a code of a table, by its place."""
        return {} if self.columns is None else self.columns.codes

    @property
    def example_file(self) -> str:
        """Return a made-up name of a file that such inputs may be in."""
        if self.has_several_inputs:
            return "inputs.npz"
        if self.columns is not None or self.feature_names:
            return "inputs.csv"
        # Grey or colour; other channels are no pictures of a folder.
        is_picture = len(self.input_shape) == 3 and self.input_shape[0] in (1, 3)
        return "pictures/" if is_picture else "inputs.npy"

    def example(self, count: int = 2) -> Inputs:
        """Return made-up inputs: no sample of the training data is handed over."""
        if not self.inputs:
            return Inputs.of(torch.randn(count, *self.input_shape, generator=Generator().manual_seed(0)))
        return self.call({one.key: one.example(count) for one in self.inputs})

    def call(self, values: Any) -> Inputs:
        """Return inputs as the network takes them: one tensor, several, or by name.

        Args:
            values: A tensor, or tensors by the keys of `inputs`.
        """
        if not isinstance(values, dict):
            return Inputs.of(values)
        places = [name for name in values if _is_positional(name)]
        keywords = {name: value for name, value in values.items() if name not in places}
        return Inputs(tuple(values[name] for name in places), keywords)

    def summaries(self, prediction: Prediction) -> dict[str, list[Any]]:
        """Return a row for each sample: the table of a prediction, or means over positions of a dense one."""
        if prediction.members.ndim <= DENSE_AXES:
            return self.table(prediction)
        found = in_units(prediction, self.target_scaling).numpy()
        names = [name for name in MEANS if name in found]
        return {f"mean_{name}": found[name].reshape(len(prediction), -1).mean(1).tolist() for name in names}

    def prepare(self, raw: Tensor) -> Tensor:
        """Return raw inputs `[count, ...]` in the form that the network takes."""
        return self.scaling.apply(raw)

    def table(self, prediction: Prediction) -> dict[str, list[Any]]:
        """Return the columns of a prediction in the units of the data, with classes by their names."""
        return named_columns(in_units(prediction, self.target_scaling), self.class_names, self.classes)

    def arrays(self, prediction: Prediction) -> dict[str, Any]:
        """Return the columns of a prediction, or all positions of a dense one, `[samples, ...]` each."""
        if prediction.members.ndim <= DENSE_AXES:
            return dict(self.table(prediction))
        found = in_units(prediction, self.target_scaling).numpy()
        return {name: found[name] for name in ("labels", *MEANS) if name in found}

    def save(self, folder: Path) -> None:
        """Write the signature into the folder of a run."""
        with replacing(folder / FILE) as unfinished:
            unfinished.write_text(json.dumps(self.to_dict(), allow_nan=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Signature":
        """Return the signature of a run; raise CheckpointError where it is damaged."""
        return cls.from_dict(read_json(folder / FILE, SCHEMA, REMEDY))

    def to_dict(self) -> dict[str, Any]:
        """Return a value that JSON can hold and that `SCHEMA` describes."""
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
            "inputs": [vars(one) | {"shape": list(one.shape)} for one in self.inputs],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Signature":
        """Return the signature that `to_dict` wrote; the value was checked by `SCHEMA`.

        Raises:
            CheckpointError: The fields do not fit one another.
        """
        shape, classes = values["input_shape"], values["classes"]
        names, features = values["class_names"], values["feature_names"]
        low, high = values["low"], values["high"]
        columns = None if values["columns"] is None else columns_from_dict(values["columns"])
        _check("class_names", len(names) in (0, classes), "be one for each class")
        _check("feature_names", not features or [len(features)] == shape, "be one for each number")
        specs = [InputSpec(one["key"], tuple(one["shape"]), one["dtype"]) for one in values.get("inputs", ())]
        for one in specs:
            _check("inputs", one.dtype in TYPES, f"have types of {', '.join(TYPES)}")
            # Examples of this size are made before any input is read.
            _check("inputs", math.prod(one.shape) <= MOST_NUMBERS, f"have at most {MOST_NUMBERS} numbers")
        ranges = shape[0] if shape else 1
        fits = len(low) == len(high) and len(low) in (0, ranges)
        _check("low and high", fits, "have a number for each feature or channel")
        _check("columns", columns is None or list(columns.features) == features, "make the features")
        return cls(
            name=values["name"],
            input_shape=tuple(shape),
            outputs=values["outputs"],
            classes=classes,
            class_names=tuple(names),
            scaling=_scaling_from_dict(values["scaling"], shape),
            target_scaling=_scaling_from_dict(values["target_scaling"], values["target_scaling"]["shape"]),
            feature_names=tuple(features),
            low=torch.tensor(low),
            high=torch.tensor(high),
            columns=columns,
            delimiter=values["delimiter"],
            inputs=tuple(specs),
        )


def _is_positional(key: str) -> bool:
    return key == ONLY or (key[:1] == ONLY and key[1:].isdigit())


def _specs(task: Task, forward: Callable[..., Any] | None) -> tuple[InputSpec, ...]:
    """Return the inputs of the first samples by name; the only one of a network is `x`."""
    inputs = task.train.example().inputs
    if forward is not None:
        inputs = accepted_by(inputs, forward)
    alone = len(inputs.args) == 1 and not inputs.keywords
    named = {ONLY if alone else f"{ONLY}{place}": value for place, value in enumerate(inputs.args)}
    named |= inputs.keywords
    return tuple(InputSpec.of(key, value) for key, value in named.items() if isinstance(value, Tensor))


def _ranges(task: Task) -> tuple[Tensor, Tensor]:
    """Return the least and greatest input of each feature or channel; none where there are several inputs."""
    if not isinstance(task.train.example(1).x, Tensor):
        return torch.empty(0), torch.empty(0)
    if not task.train.streams:
        return _ends(task.train.x)
    least, greatest, seen = [], [], 0
    for batch in task.train.read(SAMPLES // 8):
        low, high = _ends(batch.x)
        least.append(low)
        greatest.append(high)
        seen += len(batch)
        if seen >= SAMPLES:
            break
    return torch.stack(least).amin(0), torch.stack(greatest).amax(0)


def _ends(x: Tensor) -> tuple[Tensor, Tensor]:
    # Features and channels lie on axis 1.
    over = tuple(axis for axis in range(x.ndim) if axis != 1)
    return x.amin(over), x.amax(over)


def _check(name: str, holds: bool, expected: str) -> None:
    """Raise unless a field fits the others."""
    if not holds:
        raise CheckpointError(f"{name} of {FILE} must {expected}. {REMEDY}")


def _scaling_to_dict(scaling: Scaling) -> dict[str, Any]:
    mean, std = scaling.mean.double(), scaling.std.double()
    return {"shape": list(mean.shape), "mean": mean.flatten().tolist(), "std": std.flatten().tolist()}


def _scaling_from_dict(values: dict[str, Any], shape: list[int]) -> Scaling:
    """Return a scaling; its shape must extend to that of a sample."""
    own, mean, std = values["shape"], values["mean"], values["std"]
    _check("scaling", len(mean) == len(std) == math.prod(own), "have as many numbers as its shape")
    _check("scaling", min(std) > 0, "divide by numbers above 0")
    ends = zip(own[::-1], shape[::-1], strict=False)
    fits = len(own) <= len(shape) and all(size in (1, full) for size, full in ends)
    _check("scaling", fits, f"extend to {shape}")
    parts = [torch.tensor(part, dtype=torch.float64).reshape(own) for part in (mean, std)]
    return Scaling(*parts)
