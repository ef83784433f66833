"""The run that a page recommends, stored beside it: `pluribus predict FOLDER` takes that one."""

import json
from dataclasses import dataclass
from pathlib import Path

from pluribus.report.best_run import best_run, run_folder
from pluribus.report.recommendation import Recommendation
from pluribus.schema import Fields, Items, Text
from pluribus.untrusted import read_json
from pluribus.writing import replacing

FILE = "recommended.json"
SCHEMA = Fields(
    {
        "key": Text(most=100),
        # Both are printed: a foreign file must not control the terminal.
        "judge": Text(100, r"\w+", "the name of a metric"),
        "limits": Items(Text(200, r"[\w .,≤×+-]+", "a limit of cost"), most=100),
    }
)
REMEDY = "Write it again with `pluribus report FOLDER`."


@dataclass(frozen=True)
class Choice:
    """Recommended run of a page.

    Args:
        key: Of the record of the best run.
        judge: Name of the quality that it was chosen by.
        limits: The budget, in words.
    """

    key: str
    judge: str
    limits: tuple[str, ...] = ()


def write_choice(folder: Path, found: Recommendation | None) -> None:
    """Store the recommended run of a page; remove an earlier one if its ensemble is not in the folder."""
    run = best_run(found) if found else None
    if found is None or found.judge is None or run is None or not run_folder(folder, run).is_dir():
        (folder / FILE).unlink(missing_ok=True)
        return
    document = {"key": run.key, "judge": found.judge.name, "limits": list(map(str, found.limits))}
    with replacing(folder / FILE) as unfinished:
        unfinished.write_text(json.dumps(document) + "\n", encoding="utf-8")


def read_choice(folder: Path) -> Choice | None:
    """Return the stored choice; None where there is none.

    Raises:
        CheckpointError: the file is damaged or foreign.
    """
    if not (folder / FILE).is_file():
        return None
    stored = read_json(folder / FILE, SCHEMA, REMEDY)
    return Choice(stored["key"], stored["judge"], tuple(stored["limits"]))
