"""Folders of pictures that are streamed give the task of pictures in memory, with few of them alive."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import image_folders
from pluribus.data.image_folders import image_folder
from pluribus.data.picture_files import PictureFiles
from pluribus.methods import DeepEnsembles
from pluribus.training import Training, train

pillow = pytest.importorskip("PIL.Image")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classes of 40 pictures."""
    root = tmp_path_factory.mktemp("pets")
    generator = np.random.default_rng(0)
    for name, light in (("ant", 40), ("bee", 160)):
        (root / name).mkdir()
        for place in range(40):
            pixels = generator.integers(0, 60, (12, 12, 3)) + light
            pillow.fromarray(pixels.astype(np.uint8)).save(root / name / f"{place}.png")
    return root


def test_streamed_pictures_are_those_in_memory(folder):
    held, streamed = image_folder(folder, size=8), image_folder(folder, size=8, stream=True)
    assert streamed.train.streams
    assert repr(streamed).replace(", streamed", "") == repr(held)
    for part, split in held.parts.items():
        found = streamed.parts[part].in_memory()
        assert_close(found.x, split.x, rtol=1e-4, atol=1e-5)
        assert torch.equal(found.y, split.y)
    assert list(streamed.shifted) == list(held.shifted)
    key = ("gaussian_noise", 3)
    assert_close(streamed.shifted[key].in_memory().x, held.shifted[key].x, rtol=1e-4, atol=1e-4)
    assert streamed.fingerprint == image_folder(folder, size=8, stream=True).fingerprint


def test_large_folders_stream_by_themselves(folder, monkeypatch):
    assert not image_folder(folder, size=8).train.streams
    monkeypatch.setattr(image_folders, "STREAMED_FROM", 10_000)
    assert image_folder(folder, size=8).train.streams


def test_a_batch_of_pictures_is_alive_at_once(folder, monkeypatch):
    alive, most = weakref.WeakSet(), [0]
    read = PictureFiles.raw

    def counted(self, places):
        images = read(self, places)
        alive.add(images)
        most[0] = max(most[0], len(alive) * len(places))
        return images

    task = image_folder(folder, size=8, stream=True)
    monkeypatch.setattr(PictureFiles, "raw", counted)
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    ensemble = pl.convert(network, DeepEnsembles(members=2), example=torch.zeros(2, 3, 8, 8))
    train(ensemble, task, Training(epochs=2, batch=8), show=False)
    gc.collect()
    assert 0 < most[0] <= 16
