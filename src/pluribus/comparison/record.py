"""Record: one run as one line of JSON; what tables, figures and searches read."""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

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
        "method": Fields({"kind": Text()}, others=True),
        "task": Text(),
        "network": Text(),
        "seed": Whole(most=1 << 256),
        "training": Named(Anything()),
    },
    {
        "metrics": NUMBERS,
        "shifted": Named(NUMBERS),
        "ood": Named(NUMBERS),
        "posthoc": NUMBERS,
        "cost": NUMBERS,
        "versions": Named(Text()),
        "seconds": NUMBERS,
        "history": Named(Items(Optional(Number()))),
        "error": Text(),
        "findings": Items(Fields({"code": Text(), "message": Text(), "remedy": Text()})),
    },
)
"""The fields of a line, as those of `Record`; null stands for a number that is not finite."""


@dataclass(frozen=True)
class Record:
    """One method, trained and measured once on one task.

    Attributes:
        key: Of the settings: the same settings have the same key.
        method: Its settings.
        task: Its name and sizes.
        network: What was made into an ensemble.
        seed: Of initial weights and training.
        training: Its settings.
        metrics: On the test data, by name; regression in the units of the data.
        shifted: By `kind/severity`, some metrics on shifted test data.
        ood: By set, how well it is told from the test data.
        posthoc: After corrections fitted on validation data.
        cost: Parameters and bytes of the ensemble as it is saved; multiply-adds of one sample, bytes of
            activations, and time relative to the single network, of the frozen one.
        versions: Of what computed it.
        seconds: How long training and measuring took.
        history: How training went: by column of its log, a number for each epoch.
        error: Why the run failed; empty where it did not.
        findings: Defects that `doctor` found, each with code, message and remedy.
        outcomes: What it said of each test sample, in a file of its own; None where that was not read.
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
    outcomes: Outcomes | None = field(default=None, compare=False, repr=False)

    def _repr_html_(self) -> str:
        """Return what was measured as a table for notebooks."""
        sections = {"metrics": self.metrics, "after corrections": self.posthoc, "cost": self.cost}
        rows = [(part, name, value) for part, found in sections.items() for name, value in found.items()]
        title = f"{self.method.get('kind')} · {self.task} · {self.network} · seed {self.seed}"
        return html_table(title, ("", "", "value"), rows, [f"failed: {self.error}"] if self.error else [])

    def to_json(self) -> str:
        """One line; numbers that are not finite are null, and outcomes are left out."""
        line = asdict(replace(self, outcomes=None))
        del line["outcomes"]
        return json.dumps(_finite(line), allow_nan=False)

    @classmethod
    def from_json(cls, line: str) -> "Record":
        """Return the record in a line.

        Raises:
            ValueError: the line is no JSON, or fields are missing, unknown or of another type.
        """
        return cls(**_unfinite(parse_json(line.encode("utf-8", "surrogatepass"), SCHEMA)))


def key_of(
    method: Mapping[str, Any], task: str, network: str, seed: int, training: Mapping[str, Any], shifted: bool
) -> str:
    """A short name that follows from the settings of a run alone."""
    settings = {"method": method, "task": task, "network": network, "seed": seed}
    settings |= {"training": training, "shifted": shifted}
    text = json.dumps(settings, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def append(folder: Path, record: Record) -> None:
    """Adds a line in one write, after making good a line that a killed process left unfinished.

    Outcomes are written before it, so that a record that is there has them.
    """
    with explaining(folder / FILE):
        folder.mkdir(parents=True, exist_ok=True)
        if record.outcomes is not None:
            record.outcomes.save(_outcomes_file(folder, record))
        _append_line(folder, (record.to_json() + "\n").encode())


def _append_line(folder: Path, line: bytes) -> None:
    descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
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
        outcomes: Whether to read what lies beside them too, where it does.
    """
    found: dict[str, Record] = {}
    for path in paths:
        file = _records_file(path)
        for line in read_json_lines(file, SCHEMA, REMEDY):
            if line.error:
                continue
            record = Record(**_unfinite(line.value))
            lying = _outcomes_file(file.parent, record)
            if outcomes and not record.error and lying.is_file():
                record = replace(record, outcomes=_outcomes(lying))
            if not record.error or found.get(record.key, record).error:
                found[record.key] = record
    return list(found.values())


def damaged_lines(paths: Iterable[Path]) -> list[str]:
    """Return one sentence for each line that `read` leaves out, with its file, its number and the reason."""
    files = [_records_file(path) for path in paths]
    return [line.error for file in files for line in read_json_lines(file, SCHEMA, REMEDY) if line.error]


def _records_file(path: Path) -> Path:
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise CheckpointError(f"{path} must hold {FILE}, however: it does not. Give a folder of a run.")
    return file


def _outcomes(file: Path) -> Outcomes | None:
    """None where a file is damaged: a report says which outcomes it lacks, and shows the rest."""
    try:
        return Outcomes.load(file)
    except CheckpointError:
        return None


def _outcomes_file(folder: Path, record: Record) -> Path:
    return folder / OUTCOMES / f"{record.key}.npz"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _unfinite(value: dict[str, Any]) -> dict[str, Any]:
    for section in ("metrics", "shifted", "ood", "posthoc", "cost", "seconds", "history"):
        value[section] = _numbers(value.get(section, {}))
    return value


def _numbers(value: Any) -> Any:
    """A section, sections by name, or a list, with NaN where there is no number."""
    if isinstance(value, dict):
        return {name: _numbers(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    return math.nan if value is None else value
