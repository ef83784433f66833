"""Untrusted files: limits hold before anything is parsed, and errors name file, line and field."""

import io
import json
import os
import zipfile
from contextlib import suppress

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import pluribus as pl
from pluribus import untrusted
from pluribus.schema import Anything, Fields, Whole
from pluribus.untrusted import (
    Stored,
    document_hash,
    file_hash,
    parse_json,
    read_arrays,
    read_header,
    read_json,
    read_json_lines,
)

SCHEMA = Fields({"n": Whole()})


def test_json_that_matches_is_read(tmp_path):
    (tmp_path / "a.json").write_text('{"n": 3}')
    assert read_json(tmp_path / "a.json", SCHEMA, "Write it.") == {"n": 3}


HOSTILE = {
    "no UTF-8": (b'{"n": "\xff"}', "expected UTF-8, got byte 0xff at 7"),
    "deep lists": (b"[" * 100_000, "at most 64 nested brackets"),
    "deep objects": (b'{"a":' * 100_000, "at most 64 nested brackets"),
    "a field twice": (b'{"n": 1, "n": 2}', "got 'n' twice"),
    "half a character": (b'{"n": "\\ud800"}', "half of a surrogate pair"),
    "half a document": (b'{"n": ', "expected JSON"),
    "a long number": (b"9" * 5000, "expected JSON"),
    "nothing": (b"", "expected JSON"),
    "another type": (b'{"n": "3"}', "field n must be a whole number"),
    "a list": (b"[3]", "the content must be an object"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json_is_refused_with_the_file(name, tmp_path):
    raw, says = HOSTILE[name]
    (tmp_path / "a.json").write_bytes(raw)
    with pytest.raises(pl.CheckpointError, match=f"a.json is damaged or foreign: .*{says}.* Write it"):
        read_json(tmp_path / "a.json", SCHEMA, "Write it.")


def test_brackets_in_texts_are_no_nesting():
    assert parse_json(json.dumps(["[" * 1000 + '\\"' + "{" * 1000]).encode()) == [
        "[" * 1000 + '\\"' + "{" * 1000
    ]


def test_a_text_without_end_is_refused_in_linear_time():
    with pytest.raises(ValueError, match="expected JSON"):
        parse_json(b'"' + b'\\"' * 2_000_000)


def test_large_files_and_pipes_are_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "MOST_BYTES", 100)
    (tmp_path / "a.json").write_text(" " * 101)
    with pytest.raises(pl.CheckpointError, match="at most 100 bytes"):
        read_json(tmp_path / "a.json", SCHEMA, "")
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "none", "."):
        with pytest.raises(pl.CheckpointError, match="must be a file, got"):
            read_json(tmp_path / name, SCHEMA, "")


def test_a_damaged_line_costs_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "MOST_BYTES", 1000)
    lines = [b'{"n": 1}', b"\xff", b"[1]", b"[" * 900, b"", b"x" * 5000, b'{"n": "a"}', b'{"n": 2}', b'{"n"']
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    found = list(read_json_lines(tmp_path / "a.jsonl", SCHEMA, ""))
    assert [line.value for line in found if not line.error] == [{"n": 1}, {"n": 2}]
    assert [line.number for line in found if line.error] == [2, 3, 4, 6, 7, 9]
    assert "a.jsonl, line 7 is damaged or foreign: field n must be a whole number" in found[5].error


def test_a_header_is_read_without_tensors(tmp_path):
    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(4, dtype=torch.int64)}, tmp_path / "a.safetensors")
    found = read_header(tmp_path / "a.safetensors", "")
    assert found == {"a": Stored("F32", (2, 3)), "b": Stored("I64", (4,))}


@pytest.mark.parametrize("raw", [b"", b"abc", b"\xff" * 100, (10).to_bytes(8, "little") + b"{" * 10])
def test_a_damaged_header_is_refused(raw, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(raw)
    with pytest.raises(pl.CheckpointError, match="truncated or foreign"):
        read_header(tmp_path / "a.safetensors", "")


def archive(path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.npy", content)


def header(shape) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return stream.getvalue()


def pickled() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return stream.getvalue()


def test_arrays_come_back(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(6).reshape(2, 3), names=np.array(["a", "é"]))
    found = read_arrays(tmp_path / "a.npz", "")
    assert found["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["names"].tolist() == ["a", "é"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (pickled(), "got objects"),
        (header((10**12,)), "expected 8000000000000 bytes"),
        (header((10**15, 10**15)), "bytes in a.npy"),
        (b"no array", "damaged file"),
        (header((2,)) + b"\0" * 8, "expected 16 bytes|damaged file"),
    ],
    ids=["objects", "terabytes", "overflow", "no array", "cut short"],
)
def test_hostile_arrays_are_refused_before_they_are_allocated(content, says, tmp_path):
    archive(tmp_path / "a.npz", content)
    with pytest.raises(pl.CheckpointError, match=says):
        read_arrays(tmp_path / "a.npz", "")


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(untrusted, "MOST_ARRAY_BYTES", 1000)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1000))
    with pytest.raises(pl.CheckpointError, match="at most 1000 bytes when unpacked"):
        read_arrays(tmp_path / "a.npz", "")


def test_hashes_follow_the_content(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert file_hash(tmp_path / "a").startswith("ba7816bf8f01cfea")
    assert document_hash({"a": 1, "b": [2]}) == document_hash({"b": [2], "a": 1}) != document_hash({"a": 1})


def test_every_byte_changed_is_an_error_of_ours_or_nothing(tmp_path):
    path, generator = tmp_path / "a.npz", np.random.default_rng(0)
    np.savez_compressed(path, x=np.arange(50), y=np.array(["a"]))
    sound = path.read_bytes()
    for _ in range(300):
        raw = bytearray(sound)
        raw[generator.integers(len(raw))] = generator.integers(256)
        path.write_bytes(raw)
        with suppress(pl.CheckpointError):
            read_arrays(path, "")
    for _ in range(300):
        raw = bytearray(b'{"n": [1, {"a": "b\\u00e9"}, null, 1e5]}')
        raw[generator.integers(len(raw))] = generator.integers(256)
        path.write_bytes(raw)
        with suppress(pl.CheckpointError):
            read_json(path, Anything(), "")
