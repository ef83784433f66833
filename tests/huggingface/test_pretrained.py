"""Folders and repositories of the Hub hold an ensemble, its network's configuration and a card."""

import shutil

import huggingface_hub
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BertForSequenceClassification

import pluribus as pl
from pluribus.errors import CheckpointError
from pluribus.huggingface import from_pretrained, push_to_hub, save_pretrained
from pluribus.methods import BatchEnsemble
from tests.huggingface.tiny import bert, pad, sentences


@pytest.fixture
def ensemble():
    return pl.convert(bert(), BatchEnsemble(members=2)).eval()


@pytest.fixture
def batch():
    found = pad(sentences(3))
    del found["labels"]
    return found


class Hub:
    """A stand-in of the Hub's interface that keeps repositories in a folder."""

    def __init__(self, folder):
        self.folder, self.calls = folder, []

    def create_repo(self, repo_id, **options):
        self.calls.append(("create_repo", repo_id, options))
        return f"https://hub/{repo_id}"

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        self.calls.append(("upload_folder", repo_id, {"commit_message": commit_message}))
        shutil.copytree(folder_path, self.folder / repo_id)

    def download(self, repo_id, **options):
        self.calls.append(("download", repo_id, options))
        return str(self.folder / repo_id)


@pytest.mark.parametrize("network", [BertForSequenceClassification, AutoModelForSequenceClassification, bert])
def test_folder_returns_the_same_predictions(ensemble, batch, tmp_path, network):
    save_pretrained(ensemble, tmp_path, license="apache-2.0")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "config.json", "ensemble"]
    again = from_pretrained(tmp_path, network)
    torch.testing.assert_close(again.predict(batch).probabilities, ensemble.predict(batch).probabilities)
    save_pretrained(again, tmp_path)  # replaces the first one


def test_networks_without_a_configuration_are_passed(tmp_path):
    ensemble = pl.convert(torch.nn.Linear(3, 2), BatchEnsemble(members=2)).eval()
    save_pretrained(ensemble, tmp_path)
    again = from_pretrained(tmp_path, torch.nn.Linear(3, 2))
    torch.testing.assert_close(again(torch.ones(1, 3)), ensemble(torch.ones(1, 3)))
    with pytest.raises(CheckpointError, match=r"must hold config\.json"):
        from_pretrained(tmp_path, BertForSequenceClassification)


def test_hub_takes_and_returns_an_ensemble(ensemble, batch, tmp_path, monkeypatch):
    hub = Hub(tmp_path)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda token: hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.download)
    address = push_to_hub(ensemble, "someone/tiny", private=True, task="text-classification")
    assert address == "https://hub/someone/tiny"
    again = from_pretrained("someone/tiny", BertForSequenceClassification, revision="main")
    torch.testing.assert_close(again.predict(batch).probabilities, ensemble.predict(batch).probabilities)
    names = [name for name, *_ in hub.calls]
    assert names == ["create_repo", "upload_folder", "download"]
    assert hub.calls[0][2] == {"private": True, "exist_ok": True}
    assert hub.calls[2][2]["revision"] == "main"
    assert "pipeline_tag: text-classification" in (tmp_path / "someone/tiny/README.md").read_text("utf-8")


def test_folder_without_an_ensemble_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="must hold a folder 'ensemble'"):
        from_pretrained(tmp_path, bert)
