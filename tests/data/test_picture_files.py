"""Pictures in files: statistics of channels in one pass, and refusals."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data.picture_files import CorruptedFiles, PictureFiles, channel_scaling
from pluribus.data.pictures import Reading
from pluribus.data.scaling import Scaling
from pluribus.errors import InputError

pillow = pytest.importorskip("PIL.Image")


def files(folder, count=70, kind=np.uint8):
    generator = np.random.default_rng(0)
    for place in range(count):
        pixels = generator.integers(0, 256, (9, 9)).astype(kind)
        pillow.fromarray(pixels).save(folder / f"{place:02}.png")
    paths = sorted(folder.iterdir())
    return PictureFiles(paths, torch.arange(count) % 2, Reading(8, grey=True), "8-bit")


def test_channel_scaling_is_that_of_all_pictures(tmp_path):
    pictures = files(tmp_path)
    found, expected = channel_scaling(pictures), Scaling.of_channels(pictures.raw(range(70)))
    assert_close(found.mean, expected.mean, check_dtype=False)
    assert_close(found.std, expected.std, check_dtype=False)
    image, label = pictures.changed(found)[3]
    assert_close(image, expected.apply(pictures.raw([3]))[0])
    assert label == 1


def test_pictures_stored_otherwise_are_refused(tmp_path):
    pictures = files(tmp_path, count=2, kind=np.uint16)
    with pytest.raises(InputError, match=r"stored alike, got 8-bit in .* and 16-bit"):
        _ = pictures[0]


def test_corruptions_need_pictures_of_a_size(tmp_path):
    pictures = files(tmp_path, count=2)
    assert ("fog", 1) in list(CorruptedFiles(pictures))
    with pytest.raises(KeyError):
        _ = CorruptedFiles(pictures)["fog", 9]
    tiny = PictureFiles(pictures.paths, pictures.y, Reading(4, grey=True), "8-bit")
    assert len(CorruptedFiles(tiny)) == 0
