"""Folders of pictures: classes, parts, sizes, and what is refused."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data.image_sources import TEST
from pluribus.data.pictures import image_folder, pictures
from pluribus.errors import InputError

pillow = pytest.importorskip("PIL.Image")


def fill(folder, counts, size=(10, 12)):
    """Pictures of one grey each: the class times 50, plus the number of the picture."""
    for place, (name, count) in enumerate(counts.items()):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            values = np.full((*size, 3), 50 * place + i, np.uint8)
            pillow.fromarray(values).save(folder / name / f"{i:02}.png")
    return folder


def test_folders_are_classes(tmp_path):
    task = image_folder(fill(tmp_path / "pets", {"cat": 20, "ant": 10}), size=8)
    assert (task.name, task.class_names, task.classes) == ("pets", ("ant", "cat"), 2)
    assert (task.input_shape, len(task.shifted)) == ((3, 8, 8), 95)
    assert (len(task.train), len(task.validation), len(task.test)) == (22, 2, 6)
    shade = (task.scaling.invert(task.train.x) * 255)[:, 0, 0, 0]
    assert_close(task.train.y, (shade < 40).long(), rtol=0, atol=0)


def test_parts_are_used_where_they_are(tmp_path):
    for part, count in (("train", 9), ("val", 4), ("test", 5)):
        fill(tmp_path / part, {"ant": count, "cat": count})
    task = image_folder(tmp_path, size=8, grey=True)
    assert (len(task.train), len(task.validation), len(task.test)) == (18, 8, 10)
    assert task.input_shape == (1, 8, 8)


def test_pictures_are_reduced_by_averaging(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    pillow.fromarray(values).save(tmp_path / "one.png")
    expected = torch.from_numpy(values.reshape(32, 2, 32, 2, 3).mean((1, 3))).permute(2, 0, 1)
    assert_close(pictures([tmp_path / "one.png"], 32)[0].double(), expected, rtol=0, atol=1)  # rounded twice


def test_tiny_imagenet_is_read_as_published(tmp_path):
    folder = tmp_path / "tiny-imagenet-200" / "val" / "images"
    folder.mkdir(parents=True)
    for i in range(3):
        pillow.fromarray(np.full((64, 64), 50 * i, np.uint8)).save(folder / f"val_{i}.JPEG")
    x = TEST["tiny_imagenet"].read(tmp_path).x
    assert x.shape == (3, 3, 32, 32)
    assert_close(x[:, 0, 0, 0].int(), torch.tensor([0, 50, 100]).int(), rtol=0, atol=2)


def test_broken_folders_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"must lie in a folder, however: .*nowhere is none"):
        image_folder(tmp_path / "nowhere")
    (tmp_path / "ant").mkdir()
    with pytest.raises(InputError, match="must hold a folder per class, at least 2, however: 1"):
        image_folder(tmp_path)
    (tmp_path / "bee").mkdir()
    with pytest.raises(InputError, match=r"ant must hold pictures \(.png, .*\), however: it holds none"):
        image_folder(tmp_path)
    for name in ("ant", "bee"):
        (tmp_path / name / "cut.png").write_bytes(b"no picture")
    with pytest.raises(
        InputError, match=r"cut.png must be a whole file of its kind, however: cannot identify"
    ):
        image_folder(tmp_path)


def test_a_class_without_training_pictures_is_refused(tmp_path):
    fill(tmp_path / "train", {"ant": 5, "bee": 5})
    fill(tmp_path / "test", {"ant": 5, "beee": 5})
    with pytest.raises(InputError, match=r"ant, bee as in training, however: .*beee. Did you mean 'bee'\?"):
        image_folder(tmp_path)
