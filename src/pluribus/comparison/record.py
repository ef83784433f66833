"""Record: one run as one line of JSON. Tables, figures and searches read these lines."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pluribus.comparison.one_line import one_line
from pluribus.comparison.outcomes import Outcomes
from pluribus.errors import CheckpointError
from pluribus.notebook import html_table
from pluribus.schema import Anything, Fields, Items, Named, Number, Optional, Text, Whole
from pluribus.untrusted import parse_json, read_json_lines
from pluribus.writing import explaining

FILE = "records.jsonl"
OUTCOMES = "outcomes"
REMEDY = "Run the comparison again."

NUMBERS = Named(Optional(Number()))
SCHEMA = Fields(
    {
        # The key is a file name too, and must not lead out of the folder.
        "key": Text(most=64, pattern=r"[0-9A-Za-z_-]+", name="letters and digits"),
        # The folder of the run is named by the kind of its method too.
        "method": Fields({"kind": Text(200, r"\w+", "the name of a method")}, others=True),
        "task": Text(),
        "network": Text(),
        "seed": Whole(most=1 << 256),
        "training": Named(Anything()),
    },
    {
        # Records of earlier versions know a task by its description alone.
        "data": Text(most=64),
        "metrics": NUMBERS,
        "shifted": Named(NUMBERS),
        "ood": Named(NUMBERS),
        "posthoc": NUMBERS,
        "cost": NUMBERS,
        "versions": Named(Text()),
        "seconds": NUMBERS,
        "history": Named(Items(Optional(Number()))),
        "error": Text(),
        "intervals": Named(Items(Optional(Number()))),
        "decisions": NUMBERS,
        "findings": Items(Fields({"code": Text(), "message": Text(), "remedy": Text()})),
        "ood_score": Text(most=100),
        "class_names": Items(Text(), most=2),
    },
)
"""Fields of a line, as in `Record`; null stands for a number that is not finite."""
SECTIONS = (
    *("metrics", "shifted", "ood", "posthoc", "cost", "seconds", "history"),
    *("intervals", "decisions"),
)
"""Sections of numbers."""


@dataclass(frozen=True, repr=False)
class Record:
    """One method, trained and measured once on one task.

    Attributes:
        key: Identifies the settings and what the network computes: equal ones have equal keys.
        method: Settings of the method.
        task: Name and sizes of the task.
        network: Name of the network.
        seed: Seed of initial weights and training.
        training: Settings of the training.
        data: Fingerprint of the data and settings of the task; empty in records of earlier versions.
        metrics: On the test data, raw, by name; regression in the units of the data.
        shifted: Some metrics on shifted test data, by `kind/severity`; `scaled_<name>` are calibrated.
        ood: How well other data are told from the test data, by data set; `auroc_chosen` by `ood_score`.
        posthoc: Of the calibration on the test data: `scaled_<name>` are metrics after it.
        cost: Parameters and bytes of the ensemble as it is saved; multiply-adds of one sample, bytes of
            activations, and time relative to the single network, of the frozen one.
        versions: Versions of Pluribus, torch and Python.
        seconds: How long training and measuring took.
        history: How training went: by column of its log, a number for each epoch.
        error: Why the run failed; empty if it did not.
        intervals: Both ends of the 95 % bootstrap intervals of metrics, over test samples, by name.
        decisions: What decisions cost on the test data, where costs are given, and the costs themselves.
        findings: Defects that `doctor` found, each with code, message and remedy.
        ood_score: Name of the out-of-distribution score that the calibration chose; empty without one.
        class_names: Names of two classes in order, for the meaning of rates; else empty.
        outcomes: Predictions for each test sample, in a file of their own; None if that was not read.
    """

    key: str
    method: dict[str, Any]
    task: str
    network: str
    seed: int
    training: dict[str, Any]
    metrics: dict[str, float] = field(default_factory=dict)
    shifted: dict[str, dict[str, float]] = field(default_factory=dict)
    ood: dict[str, dict[str, float]] = field(default_factory=dict)
    posthoc: dict[str, float] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)
    error: str = ""
    findings: list[dict[str, str]] = field(default_factory=list)
    data: str = ""
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    decisions: dict[str, float] = field(default_factory=dict)
    ood_score: str = ""
    class_names: list[str] = field(default_factory=list)
    outcomes: Outcomes | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        """Return the run in a line, with the numbers that matter most."""
        return f"Record({one_line(self.names, self.error, self.metrics, self.cost)})"

    @property
    def names(self) -> str:
        """Return the method, the task, the network and the seed in words."""
        task = self.task.removeprefix("Task(").partition(":")[0]
        return f"{self.method.get('kind')} on {task}, {self.network}, seed {self.seed}"

    def _repr_html_(self) -> str:
        """Return what was measured as a table for notebooks."""
        sections = {"metrics": self.metrics, "calibrated": self.posthoc, "cost": self.cost}
        rows = [(part, name, value) for part, found in sections.items() for name, value in found.items()]
        title = f"{self.method.get('kind')} · {self.task} · {self.network} · seed {self.seed}"
        notes = [f"failed: {self.error}"] if self.error else []
        return html_table(title, ("", "", "value"), rows, notes)

    def to_json(self) -> str:
        """Return the record as one line; numbers that are not finite are null, outcomes are left out."""
        line = asdict(replace(self, outcomes=None))
        del line["outcomes"]
        return json.dumps(_mapped(line, _null_for_infinite), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Record":
        """Return the record in a line.

        Raises:
            ValueError: the line is no JSON, or fields are missing, unknown or of another type.
        """
        fields = parse_json(line.encode("utf-8", "surrogatepass"), SCHEMA)
        return cls(**_with_nans(fields))


def key_of(
    method: Mapping[str, Any],
    task: str,
    network: str,
    seed: int,
    training: Mapping[str, Any],
    shifted: bool,
    data: str = "",
    digest: str = "",
) -> str:
    """Return a short name that depends on the settings of a run and on nothing else.

    Args:
        method: Settings of the method.
        task: Description of the task, which counts where there is no fingerprint.
        network: Name of the network.
        seed: Of the run.
        training: Settings of the training.
        shifted: Whether shifted data was measured.
        data: Fingerprint of the task.
        digest: Digest of the network, since code can change under one name.
    """
    settings = {"method": method, "task": data or task, "network": network, "seed": seed}
    settings |= {"training": training, "shifted": shifted, "digest": digest}
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def append(folder: Path, record: Record) -> None:
    """Append a record to the file of a folder, in one write, and store its outcomes.

    Raises:
        WriteError: the disk is full, or the folder is not writable.
    """
    with explaining(folder / FILE):
        folder.mkdir(parents=True, exist_ok=True)
        # Outcomes first, so that every record in the file has its outcomes.
        if record.outcomes is not None:
            record.outcomes.save(_outcomes_file(folder, record))
        _append_line(folder, (record.to_json() + "\n").encode())


def _append_line(folder: Path, line: bytes) -> None:
    descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        # A killed process may have left a line without an end.
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            line = b"\n" + line
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(paths: Iterable[Path], outcomes: bool = False) -> list[Record]:
    """Return the records of some folders or files, the last sound one of each key.

    Lines that are unfinished or damaged are left out; `damaged_lines` names them.

    Args:
        paths: Folders of runs, or files of records.
        outcomes: Read the stored outcomes too, if they exist.
    """
    found: dict[str, Record] = {}
    for path in paths:
        file = _records_file(path)
        for line in read_json_lines(file, SCHEMA, REMEDY):
            if line.error:
                continue
            record = Record(**_with_nans(line.value))
            # A failed run must not hide an earlier one that succeeded.
            earlier = found.get(record.key)
            if record.error and earlier is not None and not earlier.error:
                continue
            if outcomes and not record.error:
                record = replace(record, outcomes=_read_outcomes(_outcomes_file(file.parent, record)))
            found[record.key] = record
    return list(found.values())


def damaged_lines(paths: Iterable[Path]) -> list[str]:
    """Return one sentence for each line that `read` leaves out, with its file, its number and the reason."""
    files = [_records_file(path) for path in paths]
    damaged = []
    for file in files:
        lines = read_json_lines(file, SCHEMA, REMEDY)
        damaged += [line.error for line in lines if line.error]
    return damaged


def _records_file(path: Path) -> Path:
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise CheckpointError(f"{path} must hold {FILE}, got no such file. Give a folder of a run.")
    return file


def _read_outcomes(file: Path) -> Outcomes | None:
    """Return outcomes, or None if the file is missing or damaged; a report lists what it lacks."""
    if not file.is_file():
        return None
    try:
        return Outcomes.load(file)
    except CheckpointError:
        return None


def _outcomes_file(folder: Path, record: Record) -> Path:
    return folder / OUTCOMES / f"{record.key}.npz"


def _with_nans(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a line with NaN for each null in a section of numbers."""
    for section in SECTIONS:
        fields[section] = _mapped(fields.get(section, {}), _nan_for_null)
    fields["intervals"] = {name: tuple(ends) for name, ends in fields["intervals"].items()}
    return fields


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of nested dicts and lists with `change` applied to all other values."""
    if isinstance(value, dict):
        return {name: _mapped(entry, change) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mapped(entry, change) for entry in value]
    return change(value)


def _null_for_infinite(value: Any) -> Any:
    # JSON has no NaN and no infinity. Python would write them, and other readers would refuse the file.
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _nan_for_null(value: Any) -> Any:
    if value is None:
        return math.nan
    return value
