"""Ten classes of Tiny ImageNet: the published folder and the packed file, made up and real."""

import io

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data.tiny_imagenet_task import CLASSES, packed, tiny_imagenet
from pluribus.errors import InputError

pillow = pytest.importorskip("PIL.Image")


def jpeg(shade):
    """A JPEG file of one grey, which the format keeps as it is."""
    file = io.BytesIO()
    pillow.new("RGB", (64, 64), (shade,) * 3).save(file, "JPEG", quality=95)
    return file.getvalue()


def shades(count):
    """Label and shade of `count` pictures of each class: ten times the class, plus its number."""
    return [(label, 10 * label + i) for label in range(10) for i in range(count)]


def write_packed(folder, train=2, val=1):
    arrays = {}
    for part, count in (("train", train), ("val", val)):
        files = [jpeg(shade) for _, shade in shades(count)]
        arrays[f"{part}_jpg"] = np.frombuffer(b"".join(files), np.uint8)
        arrays[f"{part}_off"] = np.cumsum([0, *map(len, files)])
        arrays[f"{part}_y"] = np.array([label for label, _ in shades(count)], np.uint8)
    (folder / "tiny_imagenet").mkdir()
    path = folder / "tiny_imagenet" / "ten_classes_64_jpeg.npz"
    np.savez(path, **arrays)
    return path


def write_published(folder, train=2, val=1):
    root, notes = folder / "tiny-imagenet-200", []
    for label, shade in shades(train):
        wnid = list(CLASSES)[label]
        (root / "train" / wnid / "images").mkdir(parents=True, exist_ok=True)
        (root / "train" / wnid / "images" / f"{wnid}_{shade}.JPEG").write_bytes(jpeg(shade))
    (root / "val" / "images").mkdir(parents=True)
    for number, (label, shade) in enumerate(reversed(shades(val))):
        (root / "val" / "images" / f"val_{number}.JPEG").write_bytes(jpeg(shade))
        notes.append(f"val_{number}.JPEG\t{list(CLASSES)[label]}\t0\t0\t62\t62")
    notes.append("val_99.JPEG\tn99999999\t0\t0\t62\t62")  # of another class: not read
    (root / "val" / "val_annotations.txt").write_text("\n".join(notes) + "\n")


def test_both_forms_give_one_task(tmp_path):
    (tmp_path / "packed").mkdir()
    (tmp_path / "published").mkdir()
    write_packed(tmp_path / "packed")
    write_published(tmp_path / "published")
    one, other = (tiny_imagenet(tmp_path / form, validation=0) for form in ("packed", "published"))
    for task in (one, other):
        assert (task.name, task.classes, task.input_shape) == ("tiny_imagenet", 10, (3, 64, 64))
        assert (len(task.train), len(task.test), task.class_names[3]) == (20, 10, "Egyptian cat")
        assert not task.ood
        shade = (task.scaling.invert(task.test.x) * 255).mean((1, 2, 3))
        assert_close(shade, 10.0 * task.test.y, rtol=0, atol=1e-3)
    assert_close(one.train.x, other.train.x, rtol=0, atol=0)
    assert torch.equal(one.train.y, other.train.y)


def test_a_damaged_file_is_named(tmp_path):
    path = write_packed(tmp_path)
    with np.load(path) as archive:
        arrays = dict(archive)
    np.savez(path, **arrays | {"val_jpg": np.zeros_like(arrays["val_jpg"])})
    with pytest.raises(InputError, match=r"ten_classes_64_jpeg.npz must be a whole file of its kind"):
        tiny_imagenet(tmp_path)


def test_the_real_classes_have_300_and_50_pictures_each(data_file):
    path = data_file("tiny_imagenet/ten_classes_64_jpeg.npz")
    with np.load(path) as archive:
        assert dict(zip(archive["wnids"], archive["names"], strict=True)) == CLASSES
    train, test = packed(path)
    assert torch.bincount(train.y).tolist() == [300] * 10
    assert torch.bincount(test.y).tolist() == [50] * 10
    mean = (train.x.double().mean((0, 2, 3)) / 255).tolist()
    assert mean == pytest.approx([0.4802, 0.4481, 0.3975], abs=0.06)  # of all 200 classes
