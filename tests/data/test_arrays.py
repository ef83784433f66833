"""NumPy's files: the same arrays as NumPy reads, and heads that are checked before memory is allocated."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy

from pluribus.data.arrays import is_archive, npz_archive, read_npy
from pluribus.data.sources import reading
from pluribus.errors import InputError

VALUES = np.arange(24).reshape(2, 3, 4)


def head(shape, descr="<f8", fortran_order=False):
    file = io.BytesIO()
    npy.write_array_header_1_0(file, {"shape": shape, "descr": descr, "fortran_order": fortran_order})
    return file.getvalue()


def read_one(path, name):
    with npz_archive(path) as archive:
        return archive[name]


@pytest.mark.parametrize("dtype", [">f8", "<f4", ">i4", "u1", "?", "<u2", ">f2", "<U2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_read_as_numpy_reads_them(tmp_path, dtype, order):
    values = np.asarray(VALUES.astype(dtype), order=order)
    np.save(tmp_path / "a.npy", values)
    np.savez_compressed(tmp_path / "a.npz", one=values, two=values[0, 0, 0])
    with npz_archive(tmp_path / "a.npz") as archive:
        assert list(archive) == ["one", "two"]
        found = [read_npy(tmp_path / "a.npy"), archive["one"], archive["two"]]
    for read, expected in zip(found, (values, values, values[0, 0, 0]), strict=True):
        np.testing.assert_array_equal(read, expected)
        assert read.dtype == expected.dtype.newbyteorder("=")
        assert read.dtype.isnative
        assert read.flags.writeable


def test_long_doubles_become_float64(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1, np.pi, np.longdouble("1e4000")], dtype=np.longdouble))
    np.testing.assert_array_equal(read_npy(tmp_path / "a.npy"), [1, np.pi, np.inf])


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**9), (2**62, 2**62)])
def test_declared_terabytes_are_refused_before_memory_is_taken(tmp_path, kind, shape):
    content = head(shape) + b"\0" * 64
    path = tmp_path / f"a.{kind}"
    if kind == "npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", content)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"must take at most 4 GiB, got .* TiB.*most_bytes"):
        read_npy(path) if kind == "npy" else read_one(path, "x")
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_limit_is_a_setting_for_one_array_and_for_all(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros(100), b=np.zeros(100))
    with npz_archive(tmp_path / "a.npz", most_bytes=1500) as archive:
        assert archive["a"].shape == (100,)
        assert list(archive.read(["a", "c"])) == ["a"]
        with pytest.raises(InputError, match=r"arrays of .* must take at most 1500 bytes"):
            archive.read(["a", "b"])
    with npz_archive(tmp_path / "a.npz", most_bytes=700) as archive, pytest.raises(InputError, match="a of"):
        archive["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (head((3,)) + b"\0" * 23, "must hold 24 bytes for .3. of float64, got 23"),
        (head((3,)) + b"\0" * 25, "got 25"),
        (head((-3, -1)) + b"\0" * 24, "damaged"),
        (head((3,), "|O") + b"\0" * 24, "must hold numbers, got pickled objects"),
        (head((3,))[:20], "must be a whole file of its kind"),
        (b"\x93NUMPY\x09\x00" + b"\0" * 90, "whole file of its kind|format 1.0 or 2.0"),
        (b"", "must be a whole file of its kind"),
        (b"\x93NUMPY\x01\x00\x10\x27" + b"(" * 10000, "must be a whole file of its kind"),
    ],
)
def test_damaged_arrays_are_refused(tmp_path, content, message):
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message), reading(path):
        read_npy(path)


def test_archives_are_known_by_their_content(tmp_path):
    np.save(tmp_path / "a.npy", VALUES)
    np.savez(tmp_path / "a.npz", x=VALUES)
    assert not is_archive(tmp_path / "a.npy")
    assert is_archive(tmp_path / "a.npz")
