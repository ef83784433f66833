"""Random damage: to bytes, to texts, to the values of JSON, to tensors and arrays."""

import json
import random
import string
from typing import Any

import numpy as np
import torch
from torch import Tensor

NUMBERS = (0, -1, 1, 2, 7, 255, 10**6, 10**9, 2**31, 2**63, 10**18, -(10**12), 10**30, 10**400)
FLOATS = (0.0, -0.5, 0.5, 1e-300, 1e308, float("nan"), float("inf"), -float("inf"))
WORDS = (
    *("", " ", "null", "os:system", "builtins:eval", "../../etc/passwd", "/dev/zero", "\u0000", "\x1b[31m"),
    *("ä", "𝔘", "\u202e", "=1+1", "single", "deep_ensembles", "mlp", "two_moons", "a" * 3000, "{}", "[[["),
    *("nan", "inf", "-0", "1e999", "0x10", "1_000", "٣", "<script>", "%s%n", "{0.__class__}", "\n", "\ud7ff"),
)
BYTE_RUNS = (b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xff\xfe", b"\r\n", b"[" * 5000, b'"', b"\\", b"9" * 5000)


def value(rng: random.Random) -> Any:
    """Return a random value that JSON can hold."""
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice((None, True, False))
    if kind == 1:
        return rng.choice(NUMBERS)
    if kind == 2:
        return rng.choice(FLOATS)
    if kind in (3, 4):
        return rng.choice(WORDS)
    if kind == 5:
        return [value(rng) for _ in range(rng.randrange(4))]
    if kind == 6:
        return {rng.choice(WORDS): value(rng) for _ in range(rng.randrange(4))}
    nested: Any = []
    for _ in range(rng.choice((3, 30, 80))):
        nested = [nested] if rng.random() < 0.5 else {"a": nested}
    return nested


def places(content: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all entries of nested dicts and lists."""
    found = []
    entries: Any = ()
    if isinstance(content, dict):
        entries = content.items()
    elif isinstance(content, list):
        entries = enumerate(content)
    for name, entry in entries:
        found.append((*prefix, name))
        found += places(entry, (*prefix, name))
    return found


def edit(rng: random.Random, content: Any) -> Any:
    """Return nested dicts and lists after a few random edits."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        known = places(content)
        if not known or rng.random() < 0.02:
            return value(rng)
        _edit_one(rng, content, rng.choice(known), known)
    return content


def _edit_one(rng: random.Random, content: Any, place: tuple[Any, ...], known: list[tuple[Any, ...]]) -> None:
    parent = _at(content, place[:-1])
    name = place[-1]
    kind = rng.randrange(8)
    if kind == 0:
        del parent[name]
    elif kind == 1 and isinstance(parent, dict):
        parent[rng.choice(WORDS)] = value(rng)
    elif kind == 1:
        parent.insert(name, value(rng))
    elif kind == 2:
        # A value from elsewhere is of the right kind more often than a random one.
        parent[name] = json_copy(_at(content, rng.choice(known)))
    elif kind == 3 and isinstance(parent, list):
        parent *= 2
    elif kind == 4 and type(parent[name]) in (int, float):
        parent[name] = rng.choice((parent[name] + 1, -parent[name], parent[name] * 1000, float(parent[name])))
    elif kind == 5 and isinstance(parent[name], str):
        parent[name] = text(rng, parent[name])
    else:
        parent[name] = value(rng)


def json_copy(content: Any) -> Any:
    """Return a copy that shares nothing."""
    return json.loads(json.dumps(content)) if not isinstance(content, Tensor) else content.clone()


def _at(content: Any, place: tuple[Any, ...]) -> Any:
    for name in place:
        content = content[name]
    return content


def text(rng: random.Random, before: str) -> str:
    """Return a text after a few random edits."""
    letters = list(before)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(letters) + 1)
        kind = rng.randrange(5)
        if kind == 0:
            letters[place : place + rng.choice((1, 1, 5))] = []
        elif kind == 1:
            letters.insert(place, rng.choice(string.printable))
        elif kind == 2:
            letters.insert(place, rng.choice(WORDS))
        elif kind == 3:
            letters[place:place] = letters[max(0, place - 5) : place] * 2
        else:
            letters.insert(place, str(rng.choice(NUMBERS)))
    return "".join(letters)


def raw(rng: random.Random, before: bytes, other: bytes = b"") -> bytes:
    """Return bytes after a few random edits; `other` is a file to take pieces from."""
    content = bytearray(before)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(content) + 1)
        length = rng.choice((1, 1, 4, 8, 64))
        kind = rng.randrange(9)
        if kind == 0:
            del content[place:]
        elif kind == 1:
            del content[place : place + length]
        elif kind == 2:
            content[place : place + length] = rng.randbytes(length)
        elif kind == 3:
            content[place:place] = rng.choice(BYTE_RUNS)
        elif kind == 4:
            content[place:place] = content[place : place + 10 * length]
        elif kind == 5:
            size = rng.choice((2, 4, 8))
            extreme = rng.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1)))
            content[place : place + size] = extreme.to_bytes(size, rng.choice(("little", "big")))
        elif kind == 6 and other:
            start = rng.randrange(len(other))
            content[place : place + 10 * length] = other[start : start + 10 * length]
        elif place < len(content):
            content[place] ^= 1 << rng.randrange(8)
    return bytes(content)


TYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8),
    *(torch.bool, torch.complex64),
)


def tensor(rng: random.Random, before: Tensor) -> Tensor:
    """Return another tensor: of another type, shape or with other values."""
    kind = rng.randrange(8)
    if kind == 0:
        return before.to(rng.choice(TYPES))
    if kind == 1:
        return before.flatten()[: rng.randrange(before.numel() + 1)].clone()
    if kind == 2:
        return torch.full_like(before, rng.choice((0, 1)))
    if kind == 3 and before.is_floating_point():
        # Through float64, because torch refuses a number that a type cannot hold.
        return torch.full_like(before, rng.choice(FLOATS), dtype=torch.float64).to(before.dtype)
    if kind == 4:
        return torch.zeros([rng.randrange(4) for _ in range(rng.randrange(5))])
    if kind == 5:
        return before.unsqueeze(0).clone()
    if kind == 6 and before.ndim:
        return torch.cat([before, before])
    return before.clone().reshape(-1).flip(0).reshape(before.shape)


def tensors(rng: random.Random, before: dict[str, Any]) -> dict[str, Any]:
    """Return named tensors after a few random edits."""
    after = dict(before)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(after) or ["a"])
        kind = rng.randrange(5)
        if kind == 0:
            after.pop(name, None)
        elif kind == 1 and name in after:
            after[rng.choice([*WORDS, f"{name}.x", name.upper()])] = after.pop(name)
        elif kind == 2:
            after[rng.choice(["extra", f"{name}0", "members.tensors.own.x"])] = torch.zeros(2)
        elif name in after:
            after[name] = tensor(rng, after[name])
    return after


KINDS = ("<f4", "<f8", "<f2", "<i8", "<i4", "|u1", "|b1", "<c8", ">f4", "<U3", "|S4", "<M8[s]", "<f16")


def array(rng: random.Random, before: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Return another array: of another type, shape or with other values."""
    kind = rng.randrange(6)
    if not before.size:
        # An earlier change left nothing that could be changed.
        return before
    if kind == 0:
        # Text, which an earlier change may have made, is no number of another type.
        with np.errstate(all="ignore"):
            return before if before.dtype.kind in "SU" else before.astype(rng.choice(KINDS))
    if kind == 1:
        return before[: rng.randrange(len(before) + 1)] if before.ndim else before
    if kind == 2 and before.dtype.kind == "f":
        changed = before.astype(np.float64)
        changed.flat[rng.randrange(changed.size)] = rng.choice(FLOATS)
        return changed
    if kind == 3:
        return np.zeros([rng.randrange(4) for _ in range(rng.randrange(6))], rng.choice(KINDS))
    if kind == 4 and before.dtype.kind in "iu":
        changed = before.astype(np.int64)
        changed.flat[rng.randrange(changed.size)] = rng.choice((-1, 5, 10**12, 2**62))
        return changed
    longer = rng.random() < 0.5 or not before.ndim
    return np.asfortranarray(before[None] if longer else before.swapaxes(0, -1))
