"""The folder of a saved ensemble: `weights.safetensors` and `ensemble.json`, whole or not at all."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from pluribus.errors import CheckpointError

FORMAT = "pluribus ensemble"
VERSION = 1
WEIGHTS, SETTINGS = "weights.safetensors", "ensemble.json"


def write_folder(path: str | Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Writes beside the target first and then puts it in place; an earlier ensemble there is replaced."""
    target = Path(path).resolve()  # a link is followed, not replaced
    if any(parent.is_file() for parent in target.parents):
        raise CheckpointError(f"{target} must be a folder, however: a parent of it is a file.")
    if target.exists() and not _is_ours(target):
        raise CheckpointError(
            f"{target} must be new, empty or a saved ensemble, however: it holds something else. "
            "Choose another folder."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        save_file(
            {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, fresh / WEIGHTS
        )
        document = {"format": FORMAT, "version": VERSION, **settings}
        (fresh / SETTINGS).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        fresh.chmod(0o755)
        if target.exists():
            old = fresh.with_name(f"{fresh.name}-old")
            os.replace(target, old)
            try:
                os.replace(fresh, target)
            except BaseException:
                old.rename(target)
                raise
            shutil.rmtree(old)
        else:
            os.replace(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def read_folder(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The settings and tensors that `write_folder` wrote."""
    folder = Path(path)
    if not (folder / SETTINGS).is_file() or not (folder / WEIGHTS).is_file():
        raise CheckpointError(
            f"{folder} must hold {SETTINGS} and {WEIGHTS}, however: it does not. "
            "Give the folder that ensemble.save(...) wrote."
        )
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{folder / SETTINGS} must be JSON, however: {error}. Save again.") from error
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise CheckpointError(f"{folder / SETTINGS} must be a saved ensemble, however: it is something else.")
    if type(settings.get("version")) is not int or not 1 <= settings["version"] <= VERSION:
        raise CheckpointError(
            f"this Pluribus reads saved ensembles of version 1 to {VERSION}, however: {folder} has version "
            f"{settings.get('version')!r}. Install a later Pluribus."
        )
    return settings, read_tensors(folder / WEIGHTS)


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
