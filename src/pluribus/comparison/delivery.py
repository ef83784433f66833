"""Delivery: a finished run as bytes, from a worker that may share no folder with the coordinator.

The worker trains in a temporary folder and returns the record with the content of the run's folder. The
coordinator alone writes, files first and the record last, so that every record has its files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pluribus.comparison.record import Record
from pluribus.errors import PluribusError
from pluribus.training.checkpoint import FILE as CHECKPOINT
from pluribus.writing import replacing

LOCK = "lock"
LEFT = frozenset({CHECKPOINT, LOCK})
"""Files that a finished run does not need: a checkpoint holds the weights three times."""


@dataclass(frozen=True)
class Delivery:
    """The result of one run.

    Attributes:
        record: The measurements, with outcomes.
        files: Content of the run's folder, by path below it, with `/` between folders.
    """

    record: Record
    files: Mapping[str, bytes]


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files below a folder, by relative path, without `LEFT`."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in LEFT:
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files below a folder, each completely or not at all.

    Raises:
        PluribusError: a path leads out of the folder; nothing was written.
        WriteError: the disk is full, or the folder is not writable.
    """
    for name in files:
        path = PurePosixPath(name)
        # A worker is another program on another machine, maybe of another version.
        if path.is_absolute() or ".." in path.parts or not path.parts:
            raise PluribusError(f"files of a run must lie below its folder, got {name!r} from a worker.")
    for name, content in files.items():
        with replacing(folder / name) as unfinished:
            unfinished.write_bytes(content)
