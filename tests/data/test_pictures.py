"""Folders of pictures: classes, parts, sizes, and what is refused."""

import os
import signal
import struct
import zlib

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data.image_folders import image_folder
from pluribus.data.image_sources import TEST
from pluribus.data.pictures import pictures
from pluribus.errors import InputError, SettingError

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
    with pytest.raises(InputError, match=r"must lie in a folder, got .*nowhere, which is none"):
        image_folder(tmp_path / "nowhere")
    (tmp_path / "ant").mkdir()
    with pytest.raises(InputError, match="must hold a folder per class, at least 2, got 1"):
        image_folder(tmp_path)
    (tmp_path / "bee").mkdir()
    with pytest.raises(InputError, match=r"ant must hold pictures \(.png, .*\), got none"):
        image_folder(tmp_path)
    for name in ("ant", "bee"):
        (tmp_path / name / "cut.png").write_bytes(b"no picture")
    with pytest.raises(
        InputError, match=r"cut.png must be a whole file of its kind, got an error: cannot identify"
    ):
        image_folder(tmp_path)


def test_a_class_without_training_pictures_is_refused(tmp_path):
    fill(tmp_path / "train", {"ant": 5, "bee": 5})
    fill(tmp_path / "test", {"ant": 5, "beee": 5})
    with pytest.raises(InputError, match=r"ant, bee as in training, got .*beee. Did you mean 'bee'\?"):
        image_folder(tmp_path)


def deep(folder, ending, dtype, top, count=10):
    """Two classes of pictures, dark and bright, whose pixels differ by less than 1 / 256 of the range."""
    for place, name in enumerate(("bright", "dark")):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            ramp = (
                np.linspace(0.4 - 0.2 * place, 0.4 - 0.2 * place + 0.01, 16 * 16).reshape(16, 16) + 0.001 * i
            )
            pillow.fromarray((ramp * top).astype(dtype)).save(folder / name / f"{i}{ending}")
    return folder


@pytest.mark.parametrize(
    ("ending", "dtype", "top", "levels", "note"),
    [
        (".png", np.uint16, 65535, None, "16-bit pictures were read with black at 0 and white at 65535"),
        (".tif", np.uint16, 65535, None, "16-bit pictures were read with black at 0 and white at 65535"),
        (".tif", np.uint16, 4095, (0, 4095), "16-bit pictures were read with black at 0 and white at 4095"),
        (".tif", np.int32, 10**6, (0, 10**6), "32-bit integer pictures were read with black at 0"),
        (".tiff", np.float32, 1, None, "float pictures were read with black at 0 and white at 1"),
        (".tiff", np.float32, 3000, (0, 3000), "float pictures were read with black at 0 and white at 3000"),
    ],
)
@pytest.mark.parametrize("grey", [True, False])
def test_deep_pictures_keep_their_range(tmp_path, ending, dtype, top, levels, note, grey):
    task = image_folder(deep(tmp_path / "scans", ending, dtype, top), size=16, grey=grey, levels=levels)
    shares = task.scaling.invert(task.train.x)
    assert task.input_shape == (1 if grey else 3, 16, 16)
    for label, low in ((0, 0.4), (1, 0.2)):
        own = shares[task.train.y == label]
        assert_close(own.min(), torch.tensor(low), rtol=0, atol=2e-3)
        assert_close(own.max(), torch.tensor(low + 0.017), rtol=0, atol=3e-3)
    assert len(torch.unique(shares)) > 100  # eight bits would leave fewer than ten
    assert note in task.notes[0]


def test_bytes_stay_bytes_and_need_no_note(tmp_path):
    task = image_folder(fill(tmp_path / "pets", {"cat": 6, "ant": 6}), size=8)
    assert task.notes == ()


@pytest.mark.parametrize(
    ("dtype", "top", "message"),
    [
        (np.int32, 4095, "scans/bright/0.tif.* must be known|the values of black and white must be known"),
        (
            np.float32,
            3000,
            r"bright/0.tif must hold values from 0 to 1, got 1200 to 1230. Set the option levels",
        ),
    ],
)
def test_ambiguous_ranges_are_refused(tmp_path, dtype, top, message):
    with pytest.raises(InputError, match=message):
        image_folder(deep(tmp_path / "scans", ".tif", dtype, top))


def test_pictures_of_two_depths_are_refused(tmp_path):
    folder = deep(tmp_path / "scans", ".png", np.uint16, 65535)
    pillow.fromarray(np.zeros((9, 9), np.uint8)).save(folder / "dark" / "5.png")
    with pytest.raises(InputError, match=r"stored alike, got 16-bit in .*0.png and 8-bit in .*5.png"):
        image_folder(folder)


def bomb(path, side):
    """A PNG file of a few kilobytes that states `side` × `side` pixels."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(9)))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("side", [9000, 12000, 100000])
def test_picture_bombs_are_refused_before_they_are_decoded(tmp_path, side):
    folder = fill(tmp_path / "pets", {"cat": 4, "ant": 4})
    bomb(folder / "cat" / "99.png", side)
    with pytest.raises(
        InputError, match=r"99.png must (have at most 67108864 pixels|be a picture that Pillow)"
    ):
        image_folder(folder)


def test_most_pixels_is_a_setting(tmp_path):
    folder = fill(tmp_path / "pets", {"cat": 4, "ant": 4})
    with pytest.raises(
        InputError, match=r"at most 119 pixels, got 12 × 10. Reduce it, or raise the option most_p"
    ):
        image_folder(folder, most_pixels=119)
    assert image_folder(folder, most_pixels=120).classes == 2


def test_huge_sizes_are_refused_before_memory_is_taken(tmp_path):
    folder = fill(tmp_path / "pets", {"cat": 4, "ant": 4})
    with pytest.raises(
        InputError, match=r"8 pictures of 1000000 × 1000000 must take at most 4 GiB, got 87.3 TiB"
    ):
        image_folder(folder, size=10**6, stream=False)
    with pytest.raises(InputError, match="at most 1000 bytes"):
        image_folder(folder, size=8, most_bytes=1000)
    with pytest.raises(SettingError, match="size must be a whole number"):
        image_folder(folder, size=1e6)


def test_pipes_among_pictures_are_refused(tmp_path):
    folder = fill(tmp_path / "pets", {"cat": 4, "ant": 4})
    os.mkfifo(folder / "cat" / "99.png")

    def stop(*_):
        raise AssertionError("opening the pipe blocks")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    try:
        with pytest.raises(InputError, match=r"99.png must be a regular file, got a folder, pipe or device"):
            image_folder(folder)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
