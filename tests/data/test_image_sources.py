"""Every image set has a home and paths, and its test data are not its training data."""

import gzip
import struct

import numpy as np
import pytest
import torch

from pluribus.data.image_sources import TEST, TRAIN, mnist_kin
from pluribus.data.images import image_set
from pluribus.errors import InputError


@pytest.mark.parametrize(("part", "sources"), [("train", TRAIN), ("test", TEST)])
def test_every_set_says_where_to_get_it_and_where_to_put_it(part, sources):
    for name, source in sources.items():
        assert source.home.startswith("http"), name
        assert source.forms, name


def test_training_and_test_files_are_not_mixed_up():
    for name in TRAIN:
        shared = set(TRAIN[name].forms) & set(TEST[name].forms)
        assert all(path.endswith(".npz") for path in shared), name  # these hold both, under two names


def test_the_files_of_mnist_are_read_compressed_or_not(tmp_path):
    images = np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28)
    content = struct.pack(">IIII", 2051, 2, 28, 28) + images.tobytes()
    labels = struct.pack(">II", 2049, 2) + bytes([3, 7])
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    (tmp_path / "FashionMNIST" / "raw").mkdir(parents=True)
    (tmp_path / "FashionMNIST" / "raw" / "t10k-images-idx3-ubyte").write_bytes(content)
    (tmp_path / "FashionMNIST" / "raw" / "t10k-labels-idx1-ubyte").write_bytes(labels)
    for name in ("mnist", "fashion_mnist"):
        split = mnist_kin("test")[name].read(tmp_path)
        assert torch.equal(split.x.squeeze(), torch.from_numpy(images))
        assert split.y.tolist() == [3, 7]


def test_a_missing_set_is_refused_with_its_home_and_its_place(tmp_path):
    with pytest.raises(InputError, match=r"as fashion_mnist/.*Get it from .*zalando"):
        image_set("fashion_mnist", data_dir=tmp_path)
