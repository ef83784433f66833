"""`pluribus verify`: check the files of a run without importing or running anything of the user's.

    file                   checked
    run.json               schema
    signature.json         schema, fields that fit one another
    ensemble.json          schema, its own hash, counts against the header of the tensors
    weights.safetensors    header, hash, no NaN
    training.pt            schema, no code, no NaN
    records.jsonl          every line
    outcomes/*.npz         sizes, types, lengths
    *.onnx, *.pt2, *.xml   the hash in the description beside it

Hashes find damage. They do not find forgery: whoever can write the weights can write the hash.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pluribus.comparison import record, run_folder
from pluribus.comparison.outcomes import Outcomes
from pluribus.data import signature
from pluribus.data.signature import Signature
from pluribus.document import check_counts, check_document, methods_of
from pluribus.errors import CheckpointError, PluribusError
from pluribus.export.description import check_description
from pluribus.export.exporting import FORMATS
from pluribus.mechanisms.running.frozen_file import FROZEN
from pluribus.mechanisms.running.frozen_reading import load_frozen
from pluribus.method import Method
from pluribus.report import choice_file
from pluribus.saving import (
    REMEDY,
    SETTINGS,
    WEIGHTS,
    check_settings_hash,
    check_weights_hash,
    read_calibration,
    read_settings,
    read_tensors,
    split_calibration,
)
from pluribus.schema import Fields
from pluribus.search import storage, study
from pluribus.search.engine import SPACE_FILE
from pluribus.search.running import VALIDATION
from pluribus.search.study import TAKEN
from pluribus.testbed import results
from pluribus.training import checkpoint
from pluribus.untrusted import read_header, read_json
from pluribus.weights import check_values


@dataclass(frozen=True)
class Finding:
    """One file that was checked. `problem` is empty if the file is sound."""

    path: Path
    problem: str = ""


def verify(folder: Path) -> list[Finding]:
    """Return one finding for each file of a run, a comparison or a saved ensemble.

    Raises:
        CheckpointError: the folder holds nothing of Pluribus.
    """
    found = list(_findings(folder))
    if not found:
        raise CheckpointError(
            f"{folder} must be a folder that Pluribus wrote, got none of {run_folder.FILE}, {SETTINGS}, "
            f"{checkpoint.FILE} and {record.FILE}. Give the folder of a run, a comparison or an ensemble."
        )
    return found


def _findings(folder: Path) -> Iterator[Finding]:
    for name, check in CHECKS.items():
        if (folder / name).exists():
            yield _checked(folder / name, check)
    yield from _ensemble_findings(folder)
    for path in sorted((folder / record.OUTCOMES).glob("*.npz")):
        yield _checked(path, Outcomes.load)
    yield from _exported_findings(folder)
    named = (folder / name for name in (run_folder.ENSEMBLE, TAKEN, VALIDATION))
    for child in (*named, *sorted((folder / run_folder.RUNS).glob("*"))):
        # Links are not followed: they could lead round in a circle.
        if child.is_dir() and not child.is_symlink():
            yield from _findings(child)


def _ensemble_findings(folder: Path) -> Iterator[Finding]:
    if (folder / FROZEN.settings).exists():
        yield _checked(folder / FROZEN.settings, _check_frozen)
        return
    if (folder / SETTINGS).exists() or (folder / WEIGHTS).exists():
        yield _checked(folder / SETTINGS, _check_settings)
        yield _checked(folder / WEIGHTS, _check_weights)


def _exported_findings(folder: Path) -> Iterator[Finding]:
    for form in FORMATS.values():
        for path in sorted(folder.glob(f"*{form.suffix}.json")):
            yield _checked(path, check_description)


def _checked(path: Path, check: Callable[[Path], object]) -> Finding:
    try:
        check(path)
    except PluribusError as error:
        return Finding(path, str(error))
    except OSError as error:
        return Finding(path, f"it cannot be read: {error.strerror}")
    return Finding(path)


def _check_settings(path: Path) -> None:
    folder = path.parent
    settings = read_settings(folder)
    check_document(settings, folder)
    check_settings_hash(folder, settings)
    # A method of the user's own is known only where its code was imported, which is not done here.
    if settings["method"]["kind"] in Method.known():
        method, _ = methods_of(settings, folder)
        check_counts(method, read_header(folder / WEIGHTS, REMEDY), settings, folder)


def _check_frozen(path: Path) -> None:
    load_frozen(path.parent)
    check_settings_hash(path.parent, read_settings(path.parent, FROZEN), FROZEN)


def _check_weights(path: Path) -> None:
    read_header(path, REMEDY)
    settings = read_settings(path.parent)
    check_weights_hash(path.parent, settings)
    tensors = read_tensors(path)
    check_values(tensors, (), path)
    read_calibration(settings, split_calibration(tensors)[1])


def _check_training(path: Path) -> None:
    state = checkpoint.read_state(path)
    check_values(state["weights"], (), path)


def _check_records(path: Path) -> None:
    damaged = record.damaged_lines([path])
    if damaged:
        raise CheckpointError(" ".join(damaged))


CHECKS: dict[str, Callable[[Path], object]] = {
    run_folder.FILE: lambda path: run_folder.read_run(path.parent),
    signature.FILE: lambda path: Signature.load(path.parent),
    checkpoint.FILE: _check_training,
    record.FILE: _check_records,
    choice_file.FILE: lambda path: choice_file.read_choice(path.parent),
    study.CHOICE: lambda path: study.read_label(path.parent),
    study.VALUES: study.read_values,
    results.FILE: results.check_lines,
    SPACE_FILE: lambda path: read_json(path, Fields(others=True), "Run the search again."),
    storage.FILE: storage.check_file,
}
"""By name of a file that commands write, what raises an error where it is damaged."""
