"""The folder of a saved ensemble: `weights.safetensors` and `ensemble.json`, whole or not at all."""

import glob
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from pluribus.errors import CheckpointError
from pluribus.schema import Fields, Text, shown
from pluribus.untrusted import document_hash, file_hash, read_header, read_json
from pluribus.writing import explaining, remove, remove_stale, unfinished_name

FORMAT = "pluribus ensemble"
VERSION = 1
WEIGHTS, SETTINGS = "weights.safetensors", "ensemble.json"
HASHES = "sha256"
REMEDY = "Save the ensemble again."
HASH = Text(pattern="[0-9a-f]{64}", name="a SHA-256 in hexadecimal")
DOCUMENT = Fields(optional={HASHES: Fields({"weights": HASH, "settings": HASH})}, others=True)


def write_folder(path: str | Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write beside the target first and then put it in place; an earlier ensemble there is replaced.

    The settings hold the hashes of both files, by which `pluribus verify` finds damage.
    """
    target = Path(path).resolve()  # a link is followed, not replaced
    if any(parent.is_file() for parent in target.parents):
        raise CheckpointError(f"{target} must be a folder, however: a parent of it is a file.")
    restore_backup(target)
    if target.exists() and not _is_ours(target):
        raise CheckpointError(
            f"{target} must be new, empty or a saved ensemble, however: it holds something else. "
            "Choose another folder."
        )
    remove_stale(target)
    fresh = target.with_name(unfinished_name(target.name))
    try:
        with explaining(target):
            fresh.mkdir(parents=True)
            _write_files(fresh, settings, tensors)
            _put_in_place(fresh, target)
    finally:
        remove(fresh)


def _write_files(folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    weights = folder / WEIGHTS
    weights.touch()
    mode = weights.stat().st_mode
    save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, weights)
    weights.chmod(mode)  # safetensors 0.6 writes 0600, whatever the umask
    document = {"format": FORMAT, "version": VERSION, **settings}
    # The hash of the settings is of what a reader gets: a tuple becomes a list.
    plain = json.loads(json.dumps(document))
    document[HASHES] = {"weights": file_hash(weights), "settings": document_hash(plain)}
    (folder / SETTINGS).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _put_in_place(fresh: Path, target: Path) -> None:
    """Move a folder to its place. Killed in between, it leaves a backup that the next reader restores."""
    if not target.exists():
        os.replace(fresh, target)
        return
    backup = _backup(target)
    remove(backup)
    os.replace(target, backup)
    try:
        os.replace(fresh, target)
    except BaseException:
        backup.rename(target)
        raise
    remove(backup)


def restore_backup(target: Path) -> None:
    """Put back the folder that a killed `write_folder` had moved aside, where its place is empty."""
    if target.exists() or not target.parent.is_dir():
        return
    # Versions before 0.2 gave the backup a random name.
    earlier = sorted(target.parent.glob(f".{glob.escape(target.name)}-*-old"))
    for backup in (_backup(target), *earlier):
        if backup.is_dir() and _is_ours(backup):
            with suppress(OSError):  # another process was first
                os.replace(backup, target)
            return


def _backup(target: Path) -> Path:
    return target.with_name(f".{target.name}.backup")


def read_folder(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings and tensors that `write_folder` wrote."""
    settings = read_settings(path)
    read_header(Path(path) / WEIGHTS, REMEDY)
    tensors = read_tensors(Path(path) / WEIGHTS)
    check_weights_hash(Path(path), settings)
    settings.pop(HASHES, None)
    return settings, tensors


def read_settings(path: str | Path) -> dict[str, Any]:
    """Return the settings of a saved ensemble. No tensor is read."""
    folder = Path(path)
    restore_backup(folder.resolve())
    if not (folder / SETTINGS).is_file() or not (folder / WEIGHTS).is_file():
        raise CheckpointError(
            f"{folder} must hold {SETTINGS} and {WEIGHTS}, however: it does not. "
            "Give the folder that ensemble.save(...) wrote."
        )
    settings: dict[str, Any] = read_json(folder / SETTINGS, DOCUMENT, REMEDY)
    if settings.get("format") != FORMAT:
        raise CheckpointError(f"{folder / SETTINGS} must be a saved ensemble, however: it is something else.")
    if type(settings.get("version")) is not int or not 1 <= settings["version"] <= VERSION:
        raise CheckpointError(
            f"this Pluribus reads saved ensembles of version 1 to {VERSION}, however: {folder} has version "
            f"{shown(settings.get('version'))}. Install a later Pluribus."
        )
    return settings


def check_weights_hash(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise unless the weights are those that were saved; ensembles of earlier versions have no hash."""
    hashes = settings.get(HASHES)
    if hashes is not None and file_hash(folder / WEIGHTS) != hashes["weights"]:
        raise CheckpointError(
            f"{folder / WEIGHTS} must be the file that was saved with {SETTINGS}, got another hash: it was "
            f"damaged or exchanged. {REMEDY}"
        )


def check_settings_hash(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise unless the settings are those that were saved."""
    rest = {name: value for name, value in settings.items() if name != HASHES}
    if HASHES in settings and document_hash(rest) != settings[HASHES]["settings"]:
        raise CheckpointError(f"{folder / SETTINGS} must be as it was saved, got another hash. {REMEDY}")


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file, or of a `state_dict` that `torch.save` wrote."""
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path} must be a file of weights, however: there is none.")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # every damaged file raises something else
        kind = (
            "truncated or foreign" if isinstance(error, SafetensorError | EOFError) else type(error).__name__
        )
        reason = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split("\n")[0]
        raise CheckpointError(
            f"{path} must hold the tensors of a network, however: it cannot be read ({kind}): {reason}. "
            "Save it again."
        ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise CheckpointError(f"{path} must hold a state_dict, however: it holds {type(loaded).__name__}.")
    return loaded


def _is_ours(folder: Path) -> bool:
    """Whether replacing the folder loses nothing but an ensemble."""
    if not folder.is_dir():
        return False
    names = {entry.name for entry in folder.iterdir()}
    if not names <= {WEIGHTS, SETTINGS}:
        return False
    return SETTINGS not in names or FORMAT in (folder / SETTINGS).read_text(encoding="utf-8", errors="ignore")
