"""Ensembles as folders and repositories of Hugging Face.

    README.md       the model card
    config.json     of the network, where it is one of transformers
    ensemble/       the saved ensemble: safetensors and JSON

Nothing that a file names is imported: the caller passes the class of the network.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
from torch import nn
from transformers import AutoConfig, PreTrainedModel

from pluribus.comparison.record import Record
from pluribus.ensemble import Ensemble
from pluribus.errors import CheckpointError
from pluribus.huggingface.model_card import FOLDER, model_card
from pluribus.loading import load
from pluribus.writing import replacing

CONFIG, CARD = "config.json", "README.md"
PATTERNS = [f"{FOLDER}/*", CONFIG]
"""Files of a repository that are downloaded."""


def save_pretrained(
    ensemble: Ensemble,
    path: str | Path,
    *,
    record: Record | None = None,
    processing_class: Any = None,
    **card: Any,
) -> None:
    """Write an ensemble, the configuration of its network and a model card into a folder.

    Args:
        ensemble: The ensemble.
        path: The folder.
        record: Of `pluribus.evaluate`, for the card.
        processing_class: A tokenizer or processor that is saved beside it.
        **card: `name`, `license` and `task` of `model_card`.
    """
    text = model_card(ensemble, record, **card)
    folder = Path(path)
    ensemble.save(folder / FOLDER)
    config: Any = getattr(ensemble.members.code.caller.module, "config", None)
    if hasattr(config, "save_pretrained"):
        config.save_pretrained(folder)
    if processing_class is not None:
        processing_class.save_pretrained(folder)
    with replacing(folder / CARD) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def from_pretrained(
    source: str | Path,
    network: nn.Module | Callable[..., Any],
    *,
    revision: str | None = None,
    token: str | None = None,
    **options: Any,
) -> Ensemble:
    """Return the ensemble of a folder or of a repository of the Hub, in eval mode.

    Args:
        source: A folder that `save_pretrained` wrote, or the id of a repository.
        network: The class of the network, such as `BertForSequenceClassification`, which is built from the
            stored configuration; or a network, or a factory of one, with any weights.
        revision: Branch, tag or commit of the repository.
        token: For repositories that are not public.
        **options: `example` and `output` of `pluribus.load`.

    Raises:
        CheckpointError: The folder holds no ensemble, or one of another network.
    """
    folder = Path(source)
    if not folder.is_dir():
        found = huggingface_hub.snapshot_download(
            str(source), revision=revision, token=token, allow_patterns=PATTERNS
        )
        folder = Path(found)
    if not (folder / FOLDER).is_dir():
        raise CheckpointError(
            f"{source} must hold a folder {FOLDER!r}, got none. Write it with "
            "pluribus.huggingface.save_pretrained or push_to_hub."
        )
    return load(folder / FOLDER, _build(network, folder), **options)


def push_to_hub(
    ensemble: Ensemble,
    repo_id: str,
    *,
    record: Record | None = None,
    processing_class: Any = None,
    private: bool = False,
    token: str | None = None,
    message: str = "Upload an ensemble",
    **card: Any,
) -> str:
    """Upload what `save_pretrained` writes to a repository of the Hub, and return its address.

    Args:
        ensemble: The ensemble.
        repo_id: Such as `user/name`; made if it does not exist.
        record: Of `pluribus.evaluate`, for the card.
        processing_class: A tokenizer or processor that is uploaded with it.
        private: Make a new repository that is not public.
        token: Of the Hub; by default that of `huggingface-cli login`.
        message: Of the commit.
        **card: `name`, `license` and `task` of `model_card`.
    """
    api = huggingface_hub.HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        # Written before the repository is made, so that a failure leaves nothing on the Hub.
        save_pretrained(ensemble, folder, record=record, processing_class=processing_class, **card)
        address = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message)
    return str(address)


def _build(network: nn.Module | Callable[..., Any], folder: Path) -> nn.Module | Callable[..., Any]:
    """Return what a class of transformers makes of the stored configuration; other networks as they are."""
    if isinstance(network, type) and issubclass(network, PreTrainedModel):
        _check_config(folder)
        config_class: Any = network.config_class
        return network(config_class.from_pretrained(folder))
    from_config = None if isinstance(network, nn.Module) else getattr(network, "from_config", None)
    if from_config is None:
        return network
    _check_config(folder)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    built: nn.Module = from_config(config, trust_remote_code=False)
    return built


def _check_config(folder: Path) -> None:
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            f"{folder} must hold {CONFIG} to build the network from, got none. Pass a network instead."
        )
