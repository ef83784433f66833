"""Damage one file of a sound folder, and read the folder by every verb that reads it."""

import functools
import random
import shutil
from pathlib import Path

import pluribus as pl
from pluribus.cli.run_file import load_for_prediction
from pluribus.cli.verification import verify
from pluribus.comparison import record
from pluribus.comparison.outcomes import Outcomes
from pluribus.data import Signature, load_task
from pluribus.data.given_inputs import given_inputs
from pluribus.data.raw_inputs import read_inputs
from pluribus.methods import BatchEnsemble
from pluribus.training import checkpoint
from tests.fuzz import corpus, newer_files
from tests.fuzz.damages import (
    array_damage,
    arrays_damage,
    bytes_damage,
    json_damage,
    lines_damage,
    pickle_damage,
    settings_damage,
    tensors_damage,
    text_damage,
)
from tests.fuzz.lines import run_line
from tests.fuzz.memory_inputs import odd_array, odd_cells
from tests.fuzz.outcome import Case
from tests.fuzz.target import Target


def read_ensemble(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(verify, folder)
    ensemble = case.attempt(pl.load, folder, corpus.network(), example=corpus.inputs())
    if ensemble is not None:
        case.attempt(ensemble.predict, corpus.inputs())


def read_run(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(verify, folder)
    found = case.attempt(load_for_prediction, folder, None)
    loaded = case.attempt(pl.load_run, folder)
    if loaded is not None:
        case.attempt(loaded.predict, odd_array(rng))
    inputs = Path("inputs/points.csv")
    if found is not None or rng.random() < 0.1:
        case.command(run_line, ["predict", str(folder), str(case.corpus / inputs), "--out", "out.csv"])


def read_table_run(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(verify, folder)
    signature = case.attempt(Signature.load, folder)
    if signature is not None:
        case.attempt(read_inputs, case.corpus / "table" / "table.csv", signature)
        case.attempt(given_inputs, odd_cells(rng), signature)


def read_training(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    state = case.attempt(checkpoint.read_state, file)
    if state is None:
        return
    ensemble = pl.convert(corpus.network(), BatchEnsemble(members=2), example=corpus.inputs())
    case.attempt(pl.train, ensemble, corpus.task(), corpus.TRAINING, out=folder, show=False)
    case.allowed |= {"log.csv"}


def read_records(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(record.damaged_lines, [folder])
    case.attempt(record.read, [folder], outcomes=True)
    if rng.random() < 0.15:
        case.command(run_line, ["report", str(folder), "--out", "out"])


def read_outcomes(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    found = case.attempt(Outcomes.load, file)
    if found is not None:
        case.command(run_line, ["report", str(folder), "--out", "out"])


def read_weights(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    found = case.attempt(pl.from_checkpoints, corpus.network(), [file, file], example=corpus.inputs())
    if found is not None:
        case.attempt(found.predict, corpus.inputs())


def read_table(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    likelihood = rng.choice((None, "categorical", "gaussian"))
    case.attempt(load_task, "csv", path=str(file), target="y", likelihood=likelihood)


def read_points(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    signature = Signature.load(case.corpus / "run")
    raw = case.attempt(read_inputs, file, signature)
    if raw is not None:
        case.attempt(signature.prepare, raw.values)


def read_arrays(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(load_task, "npz", path=str(file), likelihood=rng.choice(("categorical", "gaussian")))


def read_pictures(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(load_task, "folder", path=str(folder), size=8, grey=rng.random() < 0.5)


def read_published(case: Case, folder: Path, file: Path, rng: random.Random) -> None:
    case.attempt(load_task, "mnist", folder, ood=())


TARGETS: dict[str, Target] = {
    "ensemble.json": Target(
        "ensembles", "*/ensemble.json", (json_damage, *[settings_damage] * 4), read_ensemble, 3
    ),
    "weights.safetensors": Target(
        "ensembles", "*/weights.safetensors", (tensors_damage,) * 3, read_ensemble, 2
    ),
    "run.json": Target("run", "run.json", (json_damage, json_damage, text_damage), read_run, 2),
    "signature.json": Target("run", "signature.json", (json_damage, json_damage, text_damage), read_run, 2),
    "signature.json of a table": Target("table_run", "signature.json", (json_damage,) * 3, read_table_run, 5),
    "training.pt": Target("training", "training.pt", (pickle_damage,) * 3, read_training, 2),
    "records.jsonl": Target(
        "compare", "records.jsonl", (lines_damage, lines_damage, text_damage), read_records, 2
    ),
    "outcomes": Target("compare", "outcomes/*.npz", (arrays_damage,) * 2, read_outcomes, 1),
    "weights of torch": Target("weights", "*.pt", (pickle_damage,) * 2, read_weights, 5),
    "state.safetensors": Target("weights", "*.safetensors", (tensors_damage,) * 2, read_weights, 5),
    "csv": Target("table", "*.csv", (text_damage, text_damage), read_table, 8),
    "npz": Target("arrays", "*.npz", (arrays_damage,) * 3, read_arrays, 8),
    "inputs.csv": Target("inputs", "*.csv", (text_damage, text_damage), read_points, 6),
    "inputs.npy": Target("inputs", "*.npy", (array_damage,) * 2, read_points, 6),
    "inputs.npz": Target("inputs", "*.npz", (arrays_damage,) * 2, read_points, 6),
    "png": Target("pictures/png", "*/*.png", (), read_pictures, 6),
    "tiff": Target("pictures/tif", "*/*.tif", (), read_pictures, 6),
    "jpeg": Target("pictures/jpg", "*/*.jpg", (), read_pictures, 4),
    "idx": Target("published", "*/*.gz", (), read_published, 4),
    **newer_files.TARGETS,
}


@functools.cache
def all_files(corpus: Path) -> list[Path]:
    """Return the files of the corpus, in order."""
    return sorted(path for path in corpus.rglob("*") if path.is_file())


def run(case: Case, rng: random.Random) -> None:
    """Damage one file and read it."""
    name = rng.choices(list(TARGETS), [target.weight for target in TARGETS.values()])[0]
    target = TARGETS[name]
    source = case.corpus / target.folder
    chosen = rng.choice(sorted(source.glob(target.files)))
    if target.folder in ("ensembles", "frozen", "adapters"):
        source = chosen.parent
    folder = case.folder / "copy"
    shutil.copytree(source, folder)
    file = folder / chosen.relative_to(source)
    other = rng.choice(all_files(case.corpus)).read_bytes()
    damage = rng.choice((bytes_damage, *target.damages))
    damage(rng, file, other)
    case.describe(name, f"{damage.__name__} of {chosen.relative_to(case.corpus)}")
    case.watch(folder)
    target.read(case, folder, file, rng)
