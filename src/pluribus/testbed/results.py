"""Results: one line of JSON for each method, cell and seed, so that a run continues where it stopped."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pluribus.errors import CheckpointError
from pluribus.schema import Fields, Items, Named, Number, Text, Whole
from pluribus.testbed.cells import Cell
from pluribus.testbed.protocol import DIRECTIONS, Protocol
from pluribus.testbed.scoring import Scores
from pluribus.untrusted import read_json_lines
from pluribus.writing import explaining

FILE = "testbed.jsonl"
DIGITS = 6

Curve = dict[int, Scores]
"""By number of members, their scores together."""

_CURVE = Named(Items(Number(finite=True), most=len(DIRECTIONS)))
SCHEMA = Fields(
    {
        "method": Text(),
        "cell": Fields({"inputs": Whole(1), "ratio": Whole(1), "noise": Number(finite=True)}),
        "seed": Whole(),
        "settings": Fields(others=True),
        "scores": Fields({name: Number(finite=True) for name in DIRECTIONS}),
        "joint": Number(finite=True),
        "random": _CURVE,
        "ranked": _CURVE,
        "best": Whole(),
        "seconds": Number(finite=True),
    }
)
"""Fields of a line, as in `Result`."""
REMEDY = "Name the file or folder that `pluribus testbed` wrote."


@dataclass(frozen=True)
class Result:
    """The scores of one method on one problem.

    Attributes:
        method: Name of the preset, or text of the method.
        cell: The kind of problem.
        seed: Of the problem.
        settings: All settings of the protocol on which the scores depend.
        scores: By direction, the divergence of all members together.
        joint: The joint divergence of pairs of points.
        random: Scores of random subsets of the members.
        ranked: Scores of the best P members, ranked on the validation points.
        best: The P with the best score on the validation points; 0 where members were not ranked.
        seconds: CPU time of the training, shared evenly by the problems that it trained at once.
    """

    method: str
    cell: Cell
    seed: int
    settings: Mapping[str, Any]
    scores: Scores
    joint: float
    random: Curve = field(default_factory=dict)
    ranked: Curve = field(default_factory=dict)
    best: int = 0
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, Cell, int]:
        """Return what tells results of one run apart."""
        return self.method, self.cell, self.seed

    def to_line(self) -> str:
        """Return the result as one line of JSON."""
        values = asdict(self) | {"random": _packed(self.random), "ranked": _packed(self.ranked)}
        values["scores"] = _rounded(self.scores)
        values["joint"], values["seconds"] = _short(self.joint), round(self.seconds, 2)
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Result":
        """Return the result of a line that `to_line` wrote, checked by `SCHEMA`."""
        given = dict(values)
        given["cell"] = Cell(**given["cell"])
        for name in ("random", "ranked"):
            given[name] = _unpacked(given[name])
        return cls(**given)


def _packed(curve: Curve) -> dict[str, list[float]]:
    """Return a curve with one short list for each number of members."""
    return {str(size): [_short(scores[name]) for name in DIRECTIONS] for size, scores in curve.items()}


def _unpacked(curve: Mapping[str, list[float]]) -> Curve:
    return {int(size): dict(zip(DIRECTIONS, values, strict=True)) for size, values in curve.items()}


def _rounded(scores: Scores) -> Scores:
    return {name: _short(value) for name, value in scores.items()}


def _short(value: float) -> float:
    """Return a number with a few digits; scores of a diverged model may be infinite, which JSON lacks."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else 1e300


def read_results(path: Path, protocol: Protocol | None = None) -> list[Result]:
    """Return the results in a file, the last of equal keys; none where there is no file.

    A damaged line, such as one that a killed process left unfinished, costs that line alone.

    Args:
        path: The file.
        protocol: If given, results of other protocols are left out.
    """
    if not path.is_file():
        return []
    found = dict[tuple[str, Cell, int], Result]()
    for result, _ in _lines(path):
        if result is not None and (protocol is None or result.settings == protocol.training):
            found[result.key] = result
    return list(found.values())


def check_lines(path: Path) -> None:
    """Raise `CheckpointError` if a line is damaged; the message has its number."""
    damaged = [error for _, error in _lines(path) if error]
    if damaged:
        raise CheckpointError(" ".join(damaged))


def _lines(path: Path) -> Iterator[tuple[Result | None, str]]:
    """Yield the result of each line, or what is wrong with it."""
    for line in read_json_lines(path, SCHEMA, REMEDY):
        if line.error:
            yield None, line.error
            continue
        try:
            yield Result.from_dict(line.value), ""
        # A number of members is no number, or has other than two scores.
        except ValueError as error:
            yield None, f"{path}, line {line.number} is damaged or foreign: {error}."


def append_results(path: Path, results: Iterable[Result]) -> None:
    """Add lines to a file, all of them or, if the process is killed, at most one in part."""
    text = "".join(f"{result.to_line()}\n" for result in results)
    with explaining(path), path.open("a+b") as file:
        # A line that a killed process left unfinished must not swallow the next one.
        file.seek(0, 2)
        if file.tell():
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                _cut_last_line(file)
        file.write(text.encode())
        file.flush()


def _cut_last_line(file: Any) -> None:
    """Remove what follows the last line break of a file."""
    file.seek(0)
    whole = file.read()
    file.truncate(whole.rfind(b"\n") + 1)
    file.seek(0, 2)
