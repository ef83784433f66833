"""Real data through the whole way: train, compare, report and predict on what people have."""

import csv
import gc
import shutil
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.cli.commands import predict
from pluribus.comparison import evaluate, evaluation
from pluribus.comparison.comparison import compare
from pluribus.comparison.record import read
from pluribus.data import Split, Task
from pluribus.data.image_folders import image_folder
from pluribus.data.picture_files import PictureFiles
from pluribus.methods import DeepEnsembles, Single
from pluribus.report.groups import group_records
from pluribus.report.page import write_page
from pluribus.runs.named_network import Build
from pluribus.training import Training, split_prediction, train

OPTIONS = {"seeds": 1, "recipes": False, "shifted": False, "show": False}


def parts(dataset, **options):
    """Return three splits of a dataset, of which the first half is for training."""
    half, rest = len(dataset) // 2, len(dataset) // 4
    cuts = (dataset[:half], dataset[half : half + rest], dataset[half + rest :])
    return [Split(list(cut), **options) for cut in cuts]


def whole_way(build, name, task, folder, inputs):
    """Compare, report, predict; move the run and predict again; return the rows of both predictions."""
    records = compare(
        build,
        task,
        [Single(), DeepEnsembles(members=2)],
        out=folder,
        network=name,
        **OPTIONS,
        training=Training(steps=4, batch=8),
    )
    assert [one.error for one in records] == ["", ""]
    page = write_page(folder, group_records(read([folder], outcomes=True)), (), None)
    assert page.stat().st_size > 10_000
    moved = folder.with_name("moved")
    shutil.copytree(folder, moved)
    shutil.rmtree(folder)
    found = []
    for out in (folder.with_name("one.csv"), folder.with_name("two.csv")):
        given = {"task": None, "model": name, "data_dir": None, "most_bytes": 10**9, "costs": ""}
        machine = {"accelerator": "cpu", "devices": 1, "precision": "32-true"}
        predict(run=moved, inputs=inputs, out=out, **given, **machine)
        with out.open(newline="") as file:
            found.append(list(csv.DictReader(file)))
    assert found[0] == found[1]
    return found[0]


class TwoInputs(nn.Module):
    """A picture and a few numbers."""

    def __init__(self):
        super().__init__()
        self.picture = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.numbers = nn.Linear(3, 4)
        self.head = nn.Linear(8, 2)

    def forward(self, picture, numbers):
        return self.head(torch.cat((self.picture(picture), self.numbers(numbers)), 1))


def two_inputs():
    return TwoInputs()


def bert():
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=50, num_labels=2, max_position_embeddings=32, **sizes)
    return transformers.BertForSequenceClassification(config)


def unet():
    from monai.networks.nets.unet import UNet

    return UNet(spatial_dims=2, in_channels=1, out_channels=3, channels=(4, 8), strides=(2,))


@pytest.fixture
def importable(monkeypatch):
    """Let `--model mine:name` find the networks above, as a user's own module."""
    import sys
    import types

    module = types.ModuleType("mine")
    module.two_inputs, module.bert, module.unet = two_inputs, bert, unet
    monkeypatch.setitem(sys.modules, "mine", module)


@pytest.mark.slow
def test_a_network_with_two_inputs(tmp_path, importable):
    generator = torch.Generator().manual_seed(0)
    samples = []
    for label in torch.randint(0, 2, (64,), generator=generator).tolist():
        picture = torch.randn(1, 8, 8, generator=generator) + label
        samples.append(
            {"picture": picture, "numbers": torch.randn(3, generator=generator), "label": label, "name": "a"}
        )
    task = Task("two", *parts(samples), classes=2)
    pictures, numbers = (np.stack([one[key].numpy() for one in samples]) for key in ("picture", "numbers"))
    np.savez(tmp_path / "x.npz", picture=pictures, numbers=numbers)
    rows = whole_way(two_inputs, "mine:two_inputs", task, tmp_path / "run", tmp_path / "x.npz")
    assert len(rows) == 64


@pytest.mark.slow
def test_text_with_padding_and_masks(tmp_path, importable):
    generator = torch.Generator().manual_seed(0)
    samples = []
    for place in range(64):
        length = 3 + place % 9
        label = place % 2
        tokens = torch.randint(2 + 20 * label, 22 + 20 * label, (length,), generator=generator)
        samples.append({"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": label})

    def pad(batch):
        names = ("input_ids", "attention_mask")
        padded = {
            name: nn.utils.rnn.pad_sequence([one[name] for one in batch], batch_first=True) for name in names
        }
        return padded | {"labels": torch.tensor([one["labels"] for one in batch])}

    task = Task("text", *parts(samples, collate=pad), classes=2)
    whole = pad(samples)
    np.savez(
        tmp_path / "x.npz",
        input_ids=whole["input_ids"].numpy(),
        attention_mask=whole["attention_mask"].numpy(),
    )
    rows = whole_way(bert, "mine:bert", task, tmp_path / "run", tmp_path / "x.npz")
    assert len(rows) == 64
    assert {"confidence", "entropy", "mutual_information"} <= set(rows[0])


@pytest.mark.slow
def test_segmentation_by_a_unet(tmp_path, importable):
    pytest.importorskip("monai")
    generator = torch.Generator().manual_seed(0)
    samples = []
    for _ in range(32):
        mask = torch.randint(0, 3, (16, 16), generator=generator)
        samples.append((mask[None] + 0.3 * torch.randn(1, 16, 16, generator=generator), mask))
    task = Task("masks", *parts(samples), classes=3, class_weights=(1.0, 2.0, 2.0))
    np.save(tmp_path / "x.npy", np.stack([x.numpy() for x, _ in samples]))
    rows = whole_way(unet, "mine:unet", task, tmp_path / "run", tmp_path / "x.npy")
    assert len(rows) == 32
    assert {"mean_entropy", "mean_confidence"} <= set(rows[0])


@pytest.mark.slow
def test_a_folder_of_pictures_is_never_in_memory_as_a_whole(tmp_path, monkeypatch):
    from sklearn.datasets import load_digits

    pillow = pytest.importorskip("PIL.Image")
    digits = load_digits()
    for place in np.flatnonzero(digits.target < 2).tolist():
        file = tmp_path / "digits" / str(digits.target[place]) / f"{place}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray((digits.images[place] * 15).astype(np.uint8)).save(file)
    alive, most, read = weakref.WeakSet(), [0], PictureFiles.__getitem__

    def counted(self, place):
        image, label = read(self, place)
        alive.add(image)
        most[0] = max(most[0], len(alive))
        return image, label

    monkeypatch.setattr(PictureFiles, "__getitem__", counted)
    monkeypatch.setattr(evaluation, "CHUNK", 16)
    monkeypatch.setattr(split_prediction, "CHUNK", 16)
    task = image_folder(tmp_path / "digits", size=8, grey=True, stream=True)
    pictures = tmp_path / "digits" / "1"
    rows = whole_way(Build("cnn", task), "cnn", task, tmp_path / "run", pictures)
    assert len(rows) == len(list(pictures.iterdir())) == 182
    assert sum(row["labels"] == "1" for row in rows) > 150
    gc.collect()
    # All three parts have 360 pictures; a batch of at most 64 is in use while the next one is read.
    assert 0 < most[0] <= 140


class Counted:
    """A dataset that counts how many of its samples are alive."""

    def __init__(self, count):
        self.count, self.alive, self.most, self.read = count, weakref.WeakSet(), 0, 0

    def __len__(self):
        return self.count

    def __getitem__(self, place):
        x = torch.full((1, 8, 8), float(place % 2)) + 0.1 * torch.randn(1, 8, 8)
        self.alive.add(x)
        self.most, self.read = max(self.most, len(self.alive)), self.read + 1
        return x, place % 2


def test_samples_of_a_stream_are_not_kept(monkeypatch):
    """Samples die with their batch: training and measuring hold a few of them, however many there are."""
    monkeypatch.setattr(evaluation, "CHUNK", 16)
    monkeypatch.setattr(split_prediction, "CHUNK", 16)
    sets = [Counted(160), Counted(96), Counted(96)]
    task = Task("counted", *map(Split, sets), classes=2)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    ensemble = pl.convert(network, DeepEnsembles(members=2), example=torch.zeros(2, 1, 8, 8))
    train(ensemble, task, Training(epochs=2, batch=16), show=False)
    found = evaluate(ensemble, task, shifted=False)
    gc.collect()
    assert found.metrics["accuracy"] > 0.9
    assert sets[0].read > 2 * 160
    for one in sets:
        assert one.read >= one.count
        # One batch of 64 is in use while the next is read; a few are kept to check the data and to show.
        assert one.most <= 96
    assert sets[0].most < 60
