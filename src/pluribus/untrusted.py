"""Read untrusted files: JSON, JSON lines, headers of tensors, NPZ archives.

Every file that Pluribus reads back may have been damaged, or written by somebody else. All of them are read
here, by one set of rules:

- Only regular files: a pipe or a device could block for ever.
- Sizes and nesting are limited before anything is parsed or allocated.
- Text is UTF-8; an object has each name once.
- Values are checked against a schema before anybody uses them.
- Any fault is a `CheckpointError` that names the file, the line if it has lines, and the field.
- No pickle, and nothing that a file names is ever imported.
"""

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from safetensors import SafetensorError, safe_open

from pluribus.errors import CheckpointError
from pluribus.schema import Anything, Schema, shown

Array = np.ndarray[Any, Any]

MOST_BYTES = 64 << 20
"""Bytes of a JSON document or of one line; the settings of a network of 100,000 layers take 20 MB."""
MOST_NESTED = 64
"""Depth of brackets; our own documents have at most six levels."""
MOST_ARRAY_BYTES = 1 << 30
"""Bytes of all arrays of one archive when unpacked; outcomes of 20,000 samples take some megabytes."""

DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, KeyError, SyntaxError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError),
)
"""Errors for damaged archives: zipfile, zlib and NumPy have no common parent."""

# A string is matched as a whole, so that brackets inside of it do not count. The closing quote is optional:
# otherwise a string without an end would be tried again from each of its letters, in quadratic time.
TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class Unreadable(ValueError):
    """Raised for a text that is no acceptable JSON; readers add file and line."""


def parse_json(raw: bytes, schema: Schema | None = None) -> Any:
    """Return the value of a JSON text that matches a schema.

    Raises:
        ValueError: the text is too large, not UTF-8, nested too deeply, no JSON, or does not match.
    """
    if len(raw) > MOST_BYTES:
        raise Unreadable(f"expected at most {MOST_BYTES} bytes, got {len(raw)}")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"expected UTF-8, got byte {raw[error.start]:#04x} at {error.start}") from error
    check_nesting(text)
    try:
        value = json.loads(text, object_pairs_hook=_object)
    except Unreadable:
        raise
    # The text is no JSON, or holds an integer of more than 4300 digits.
    except ValueError as error:
        raise Unreadable(f"expected JSON, got {error}") from error
    check_characters(text, value)
    (schema or Anything()).check(value, "")
    return value


def check_nesting(text: str) -> None:
    """Raise `Unreadable` if brackets are nested more deeply than in any document of ours."""
    # Python's parser recurses once per bracket, and hostile nesting would overflow the stack.
    depth = 0
    for token in TOKENS.finditer(text):
        first = token[0][0]
        if first in "[{":
            depth += 1
        elif first in "]}":
            depth -= 1
        if depth > MOST_NESTED:
            raise Unreadable(f"expected at most {MOST_NESTED} nested brackets, got more at {token.start()}")


def check_characters(text: str, value: object) -> None:
    """Raise `Unreadable` for half a character (a lone surrogate), which no terminal and no file can take."""
    # A surrogate can only come from an escape.
    if "\\u" not in text:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise Unreadable("expected whole characters, got half of a surrogate pair") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        # Two readers of one document could otherwise see two different documents.
        if name in found:
            raise Unreadable(f"expected every field once, got {shown(name)} twice")
        found[name] = value
    return found


def check_file(path: Path, remedy: str) -> None:
    """Raise `CheckpointError` unless there is a regular file."""
    if not path.is_file():
        kind = "another kind of thing" if path.exists() else "nothing"
        raise CheckpointError(f"{path} must be a file, got {kind}. {remedy}")


def read_bytes(path: Path, remedy: str) -> bytes:
    """Return the content of a regular file of at most `MOST_BYTES`."""
    check_file(path, remedy)
    try:
        with path.open("rb") as file:
            # One byte more tells a file of the greatest size from a larger one.
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise CheckpointError(f"{path} must be readable, got {error.strerror}. {remedy}") from error
    if len(raw) > MOST_BYTES:
        raise CheckpointError(f"{path} must have at most {MOST_BYTES} bytes, got more. {remedy}")
    return raw


def read_json(path: Path, schema: Schema, remedy: str) -> Any:
    """Return the value of a JSON file, checked.

    Args:
        path: The file.
        schema: The schema that its value must match.
        remedy: The sentence that ends every message: what a user can do about a bad file.
    """
    raw = read_bytes(path, remedy)
    try:
        return parse_json(raw, schema)
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged or foreign: {error}. {remedy}") from error


@dataclass(frozen=True)
class Line:
    """One line of a file of JSON lines.

    Attributes:
        number: From 1.
        value: Its value; None if it is damaged.
        error: Why it is damaged, in one sentence that names file and line; empty if it is sound.
    """

    number: int
    value: Any
    error: str = ""


def read_json_lines(path: Path, schema: Schema, remedy: str) -> Iterator[Line]:
    """Yield the lines of a file of JSON lines; a damaged one costs that line and no other."""
    check_file(path, remedy)
    with path.open("rb") as file:
        number = 0
        while raw := file.readline(MOST_BYTES + 1):
            number += 1
            try:
                if len(raw) > MOST_BYTES:
                    _skip_line(file)
                if raw.strip():
                    yield Line(number, parse_json(raw, schema))
            except ValueError as error:
                yield Line(number, None, f"{path}, line {number} is damaged or foreign: {error}.")


def _skip_line(file: Any) -> None:
    """Read to the end of a line that is too long, in pieces."""
    while piece := file.readline(MOST_BYTES):
        if piece.endswith(b"\n"):
            return


@dataclass(frozen=True)
class Stored:
    """Header of one tensor of a file: its type, by the name of safetensors, and its shape."""

    dtype: str
    shape: tuple[int, ...]


def read_header(path: Path, remedy: str) -> dict[str, Stored]:
    """Return the types and shapes in a `.safetensors` file. No tensor is read or allocated."""
    check_file(path, remedy)
    try:
        with safe_open(str(path), framework="pt") as file:
            header = {}
            for name in file.keys():  # noqa: SIM118 (no mapping)
                tensor = file.get_slice(name)
                header[name] = Stored(tensor.get_dtype(), tuple(tensor.get_shape()))
            return header
    except (SafetensorError, OSError, ValueError, OverflowError, UnicodeError) as error:
        lines = str(error).splitlines()
        reason = lines[0] if lines else type(error).__name__
        raise CheckpointError(
            f"{path} must hold tensors, got a file that is truncated or foreign: {reason}. {remedy}"
        ) from error


def read_arrays(path: Path, remedy: str) -> dict[str, Array]:
    """Return the arrays of an `.npz` file, without objects; sizes are checked before anything is unpacked."""
    check_file(path, remedy)
    try:
        with zipfile.ZipFile(path) as archive:
            _check_sizes(archive)
            entries = archive.infolist()
            return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries}
    except DAMAGE as error:
        raise CheckpointError(f"{path} must hold arrays, got a damaged file: {error}. {remedy}") from error


def _check_sizes(archive: zipfile.ZipFile) -> None:
    total = sum(entry.file_size for entry in archive.infolist())
    if total > MOST_ARRAY_BYTES:
        raise Unreadable(f"expected at most {MOST_ARRAY_BYTES} bytes when unpacked, got {total}")


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Array:
    with archive.open(entry) as file:
        major = npy.read_magic(file)
        read = npy.read_array_header_1_0 if major == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    if dtype.hasobject:
        raise Unreadable(f"expected numbers or texts in {entry.filename}, got objects")
    # Python's own integers do not overflow, even for a hostile shape.
    declared = dtype.itemsize
    for size in shape:
        declared *= size
    if not 0 <= declared <= entry.file_size:
        raise Unreadable(f"expected {declared} bytes in {entry.filename}, got {entry.file_size}")
    with archive.open(entry) as file:
        return npy.read_array(file, allow_pickle=False)


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def document_hash(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a JSON document, independent of the order of its fields and of spaces."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
