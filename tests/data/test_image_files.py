"""Files of image sets: idx, the binary form of CIFAR, differences, SVHN."""

import gzip

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from pluribus.data.image_files import cifar_binary, idx, idx_pair, npz_part, svhn_mat, undifferenced
from pluribus.errors import InputError

RANDOM = np.random.default_rng(0)


def pixels(*shape):
    return RANDOM.integers(0, 256, shape, dtype=np.uint8)


def idx_bytes(values):
    head = b"\0\0\x08" + bytes([values.ndim]) + np.array(values.shape, ">u4").tobytes()
    return head + values.tobytes()


@pytest.mark.parametrize("end", ["", ".gz"])
def test_idx_files_are_read_with_their_labels(tmp_path, end):
    images, marks = pixels(5, 4, 3), np.arange(5, dtype=np.uint8)
    for name, values in (("images-idx3", images), ("labels-idx1", marks)):
        content = idx_bytes(values)
        (tmp_path / f"t10k-{name}-ubyte{end}").write_bytes(gzip.compress(content) if end else content)
    split = idx_pair(tmp_path / f"t10k-images-idx3-ubyte{end}")
    assert_close(split.x, torch.from_numpy(images)[:, None], rtol=0, atol=0)
    assert_close(split.y, torch.arange(5), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must be an idx file of bytes, got one that starts with b''"),
        (b"\0\0\x0d\x01....", "must be an idx file of bytes"),
        (b"\0\0\x08\x03\0\0", "must be an idx file of bytes"),
        (idx_bytes(np.zeros((2, 3), np.uint8))[:-1], "must hold 6 bytes after its head, got 5"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match=message):
        idx(tmp_path / "file")


@pytest.mark.parametrize("marks", [1, 2])
def test_cifar_files_are_joined_in_order(tmp_path, marks):
    images, labels = pixels(6, 3, 32, 32), pixels(6, marks)
    records = np.concatenate((labels, images.reshape(6, -1)), 1)
    for name, part in (("one.bin", records[:4]), ("two.bin", records[4:])):
        (tmp_path / name).write_bytes(part.tobytes())
    split = cifar_binary(marks, "one.bin", "two.bin")(tmp_path / "one.bin")
    assert_close(split.x, torch.from_numpy(images), rtol=0, atol=0)
    assert_close(split.y, torch.from_numpy(labels[:, -1]).long(), rtol=0, atol=0)


def test_cut_cifar_files_are_refused(tmp_path):
    (tmp_path / "one.bin").write_bytes(bytes(3074))
    with pytest.raises(InputError, match=r"one.bin must hold records of 3073 bytes, got 3074 bytes"):
        cifar_binary(1, "one.bin")(tmp_path / "one.bin")


def test_differences_give_the_images_back():
    images = pixels(4, 3, 6, 5)
    differences = images
    for axis in (3, 2, 1):
        differences = np.diff(differences, axis=axis, prepend=np.uint8(0))
    np.testing.assert_array_equal(undifferenced(differences), images)


def test_npz_files_hold_parts_or_one_set(tmp_path):
    x, y = pixels(4, 6, 5, 3), np.arange(4)
    np.savez(tmp_path / "both.npz", x_train=x, y_train=y, x_test=x[::-1], y_test=y[::-1])
    np.savez(tmp_path / "one.npz", x=x, y=y)
    expected = torch.from_numpy(x).permute(0, 3, 1, 2)
    assert_close(npz_part("train")(tmp_path / "both.npz").x, expected, rtol=0, atol=0)
    assert_close(npz_part("test")(tmp_path / "both.npz").x, expected.flip(0), rtol=0, atol=0)
    assert_close(npz_part("test")(tmp_path / "both.npz").y, torch.arange(4).flip(0), rtol=0, atol=0)
    assert_close(npz_part("test")(tmp_path / "one.npz").x, expected, rtol=0, atol=0)


def test_in_svhn_ten_is_zero(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")
    images = pixels(3, 32, 32, 3)
    content = {"X": images.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9]], np.uint8)}
    scipy_io.savemat(tmp_path / "test.mat", content)
    split = svhn_mat(tmp_path / "test.mat")
    assert_close(split.x, torch.from_numpy(images).permute(0, 3, 1, 2), rtol=0, atol=0)
    assert_close(split.y, torch.tensor([0, 1, 9]), rtol=0, atol=0)


@pytest.mark.parametrize("end", ["", ".gz"])
def test_sizes_of_idx_files_are_checked_before_memory_is_taken(tmp_path, end):
    content = b"\0\0\x08\x03" + np.array([2**31, 2**31, 2**31], ">u4").tobytes() + bytes(9)
    (tmp_path / f"file{end}").write_bytes(gzip.compress(content) if end else content)
    with pytest.raises(InputError, match=r"must take at most 4 GiB, got .* TiB"):
        idx(tmp_path / f"file{end}")


def test_compressed_idx_files_are_read_no_further_than_they_state(tmp_path):
    (tmp_path / "file.gz").write_bytes(gzip.compress(idx_bytes(np.zeros((2, 3), np.uint8)) + bytes(10**6)))
    with pytest.raises(InputError, match="must hold 6 bytes after its head, got more"):
        idx(tmp_path / "file.gz")
