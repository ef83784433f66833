"""The folder format of a saved ensemble: `weights.safetensors` and `ensemble.json`, both or neither.

`pluribus.loading` builds ensembles from these folders. The two files are apart because `Ensemble.save` writes
a folder, and `load` makes an `Ensemble`: in one file they would import each other.
"""

import glob
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from pluribus.calibration_file import calibration_of
from pluribus.calibration_record import Calibration
from pluribus.errors import CheckpointError
from pluribus.schema import Fields, Text, shown
from pluribus.torch_files import load_torch
from pluribus.untrusted import document_hash, file_hash, read_header, read_json
from pluribus.writing import explaining, remove, remove_stale, unfinished_name

FORMAT = "pluribus ensemble"
VERSION = 2
"""Version 2 has calibrations."""
CALIBRATION = "calibration"
"""Name of the calibration in the settings, and prefix of its tensors among the weights."""
WEIGHTS, SETTINGS = "weights.safetensors", "ensemble.json"
HASHES = "sha256"
REMEDY = "Save the ensemble again."
NESTED = ("state_dict", "model_state_dict", "model")
"""Names under which training scripts store a state dict."""
STATE_DICT = "Save model.state_dict()."
ANSI_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
HASH = Text(pattern="[0-9a-f]{64}", name="a SHA-256 in hexadecimal")


@dataclass(frozen=True)
class Layout:
    """One kind of folder: weights, and a JSON file beside them.

    Attributes:
        settings: Name of the JSON file.
        format: How the JSON file calls itself.
        version: The latest version that can be read.
        written_by: The call that writes such a folder.
    """

    settings: str
    format: str
    version: int
    written_by: str


ENSEMBLE = Layout(SETTINGS, FORMAT, VERSION, "ensemble.save(...)")
DOCUMENT = Fields(optional={HASHES: Fields({"weights": HASH, "settings": HASH})}, others=True)


def write_folder(
    path: str | Path,
    settings: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    layout: Layout = ENSEMBLE,
) -> None:
    """Write an ensemble beside its target, then move it into place; replace an earlier ensemble there.

    The settings include the hashes of both files, so that `pluribus verify` can find damage.

    Raises:
        CheckpointError: the target is no folder, or holds something else than an ensemble.
        WriteError: the disk is full or the folder is not writable; an earlier ensemble is kept.
    """
    # A link is followed, not replaced.
    target = resolved(path)
    for parent in target.parents:
        if parent.is_file():
            raise CheckpointError(
                f"{target} must lie in a folder, got {parent}, which is a file. Choose another folder."
            )
    restore_backup(target, layout)
    if target.exists() and not _is_ours(target, layout):
        raise CheckpointError(
            f"{target} must be new, empty or a saved ensemble, got a folder that holds something else. "
            "Choose another folder."
        )
    remove_stale(target)
    fresh = target.with_name(unfinished_name(target.name))
    try:
        with explaining(target):
            fresh.mkdir(parents=True)
            _write_files(fresh, settings, tensors, layout)
            _put_in_place(fresh, target)
    finally:
        remove(fresh)


def _write_files(
    folder: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor], layout: Layout
) -> None:
    weights = folder / WEIGHTS
    # safetensors 0.6 writes files with mode 0600 and ignores the umask: restore the usual mode.
    weights.touch()
    mode = weights.stat().st_mode
    plain_tensors = {}
    for name, tensor in tensors.items():
        plain_tensors[name] = tensor.detach().cpu().contiguous()
    save_file(plain_tensors, weights)
    weights.chmod(mode)
    document = {"format": layout.format, "version": layout.version, **settings}
    # Hash the settings as a reader gets them: JSON turns a tuple into a list.
    plain = json.loads(json.dumps(document))
    document[HASHES] = {"weights": file_hash(weights), "settings": document_hash(plain)}
    (folder / layout.settings).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _put_in_place(fresh: Path, target: Path) -> None:
    """Move a folder to its target.

    If the process is killed in between, a backup remains, which the next reader restores.
    """
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


def restore_backup(target: Path, layout: Layout = ENSEMBLE) -> None:
    """Move the backup of a killed `write_folder` back to the target, if the target does not exist."""
    if target.exists() or not target.parent.is_dir():
        return
    # Versions before 0.2 gave the backup a random name.
    earlier = sorted(target.parent.glob(f".{glob.escape(target.name)}-*-old"))
    for backup in (_backup(target), *earlier):
        if not backup.is_dir() or not _is_ours(backup, layout):
            continue
        # Another process may have restored it first.
        with suppress(OSError):
            os.replace(backup, target)
        return


def _backup(target: Path) -> Path:
    return target.with_name(f".{target.name}.backup")


def read_folder(path: str | Path, layout: Layout = ENSEMBLE) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the settings and tensors that `write_folder` wrote."""
    folder = Path(path)
    settings = read_settings(folder, layout)
    read_header(folder / WEIGHTS, REMEDY)
    tensors = read_tensors(folder / WEIGHTS)
    check_weights_hash(folder, settings)
    settings.pop(HASHES, None)
    return settings, tensors


def resolved(path: str | Path) -> Path:
    """Return where links lead to. A link to itself stays, for which Python 3.11's `resolve` has an error."""
    return Path(os.path.realpath(path))


def read_settings(path: str | Path, layout: Layout = ENSEMBLE) -> dict[str, Any]:
    """Return the settings of a saved ensemble. No tensor is read."""
    folder, name = Path(path), layout.settings
    restore_backup(resolved(folder), layout)
    missing = [file for file in (name, WEIGHTS) if not (folder / file).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder} must hold {name} and {WEIGHTS}, got no {' and no '.join(missing)}. "
            f"Give the folder that {layout.written_by} wrote."
        )
    settings: dict[str, Any] = read_json(folder / name, DOCUMENT, REMEDY)
    if settings.get("format") != layout.format:
        raise CheckpointError(
            f"{folder / name} must have the format {layout.format!r}, got {shown(settings.get('format'))}. "
            f"Give the folder that {layout.written_by} wrote."
        )
    _check_version(settings.get("version"), folder, layout.version)
    return settings


def _check_version(version: object, folder: Path, latest: int) -> None:
    # A boolean is an integer for `isinstance`, but no version.
    if type(version) is int and 1 <= version <= latest:
        return
    raise CheckpointError(
        f"{folder} must have a version from 1 to {latest}, got {shown(version)}. Install a later Pluribus."
    )


def check_weights_hash(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` unless the weights have the recorded hash."""
    # Ensembles saved before 0.2 have no hashes.
    if HASHES not in settings:
        return
    if file_hash(folder / WEIGHTS) == settings[HASHES]["weights"]:
        return
    raise CheckpointError(
        f"{folder / WEIGHTS} must be the file that was saved with {SETTINGS}, got another hash: it was "
        f"damaged or exchanged. {REMEDY}"
    )


def check_settings_hash(folder: Path, settings: Mapping[str, Any], layout: Layout = ENSEMBLE) -> None:
    """Raise `CheckpointError` unless the settings have the recorded hash."""
    if HASHES not in settings:
        return
    hashed = dict(settings)
    hashes = hashed.pop(HASHES)
    if document_hash(hashed) != hashes["settings"]:
        raise CheckpointError(
            f"{folder / layout.settings} must be as it was saved, got another hash. {REMEDY}"
        )


def split_calibration(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of the ensemble, and those of its calibration by their own names."""
    prefix = f"{CALIBRATION}."
    weights, fitted = {}, {}
    for name, tensor in tensors.items():
        if name.startswith(prefix):
            fitted[name.removeprefix(prefix)] = tensor
        else:
            weights[name] = tensor
    return weights, fitted


def read_calibration(settings: Mapping[str, Any], fitted: Mapping[str, Tensor]) -> Calibration | None:
    """Return the calibration of a saved ensemble; None where it has none, as files of version 1.

    Raises:
        CheckpointError: Its numbers or tensors are out of range or do not fit one another.
    """
    values = settings.get(CALIBRATION)
    if values is None:
        if fitted:
            raise CheckpointError(f"{SETTINGS} must have a calibration for its tensors, got none. {REMEDY}")
        return None
    return calibration_of(values, fitted)


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Return the tensors of a `.safetensors` file, or of a `state_dict` that `torch.save` wrote.

    Raises:
        CheckpointError: the file is missing, damaged, or holds something else than tensors by name.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(f"{path} must be a file of weights, got no such file. Check the path.")
    loaded = _load_any(path)
    # Training scripts often save the state dict inside a dict, beside the optimizer.
    for key in NESTED:
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict):
        raise CheckpointError(f"{path} must hold a state_dict, got {type(loaded).__name__}. {STATE_DICT}")
    for name, value in loaded.items():
        if not isinstance(value, Tensor):
            raise CheckpointError(
                f"{path} must hold a state_dict, got {type(value).__name__} for {shown(name)}. {STATE_DICT}"
            )
    return loaded


def _load_any(path: Path) -> Any:
    """Return the content of a file of weights, which is untrusted: no code is run."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return load_torch(path)
    # safetensors, zipfile and torch raise errors without a common parent for damaged files.
    except Exception as error:
        kind = type(error).__name__
        if isinstance(error, SafetensorError | EOFError):
            kind = "truncated or foreign"
        reason = ANSI_COLOURS.sub("", str(error)).split("\n")[0]
        # A whole module is code that its file names, and none of that is run.
        remedy = STATE_DICT if isinstance(error, UnpicklingError) else "Save it again."
        raise CheckpointError(
            f"{path} must hold the tensors of a network, got a file that cannot be read ({kind}): {reason}. "
            f"{remedy}"
        ) from error


def _is_ours(folder: Path, layout: Layout) -> bool:
    """Return whether the folder is empty or holds an ensemble of this layout and nothing else."""
    if not folder.is_dir():
        return False
    names = {entry.name for entry in folder.iterdir()}
    if not names <= {WEIGHTS, layout.settings}:
        return False
    if layout.settings not in names:
        return True
    text = (folder / layout.settings).read_text(encoding="utf-8", errors="ignore")
    return layout.format in text
