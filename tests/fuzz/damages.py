"""Ways to damage a file: its bytes, its text, or the values that it holds."""

import contextlib
import json
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from pluribus.untrusted import document_hash, file_hash
from tests.fuzz import mutations

Damage = Callable[[random.Random, Path, bytes], None]


def bytes_damage(rng: random.Random, path: Path, other: bytes) -> None:
    path.write_bytes(mutations.raw(rng, path.read_bytes(), other))


def text_damage(rng: random.Random, path: Path, other: bytes) -> None:
    text = path.read_text(encoding="utf-8")
    for _ in range(rng.choice((1, 1, 3))):
        text = mutations.text(rng, text)
    path.write_text(text, encoding="utf-8", errors="replace")


def json_damage(rng: random.Random, path: Path, other: bytes) -> None:
    edited = mutations.edit(rng, json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(edited), encoding="utf-8")


def lines_damage(rng: random.Random, path: Path, other: bytes) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    i = rng.randrange(len(lines))
    lines[i] = json.dumps(mutations.edit(rng, json.loads(lines[i])))
    path.write_text("\n".join(lines * rng.choice((1, 1, 2))) + "\n", encoding="utf-8")


def settings_damage(rng: random.Random, path: Path, other: bytes) -> None:
    json_damage(rng, path, other)
    _rehash(path.parent)


OPERATORS = (
    *(
        "full",
        "zeros",
        "ones",
        "arange",
        "eye",
        "linspace",
        "new_full",
        "full_like",
        "expand",
        "repeat",
        "cat",
    ),
    *(
        "kron",
        "diag_embed",
        "constant_pad_nd",
        "einsum",
        "tile",
        "relu",
        "sym_size",
        "one_hot",
        "upsample_nearest2d",
    ),
)
HUGE = (0, 1, 2, -1, 3 * 10**8, 10**12, 2**62, 2**63, 10**30, 10**400, 1e308)


def graph_damage(rng: random.Random, path: Path, other: bytes) -> None:
    """Put a node into the graph of a frozen ensemble that computes or takes as much as it can."""
    document = json.loads(path.read_text(encoding="utf-8"))
    nodes = rng.choice(document["graphs"])["nodes"]
    if rng.random() < 0.5:
        operator = f"operator.{rng.choice(('pow', 'mul', 'add', 'getitem', 'truediv', 'mod', 'sub'))}"
    else:
        operator = (
            f"aten.{rng.choice(OPERATORS)}.{rng.choice(('default', 'default', 'int', 'vec', 'self_int'))}"
        )
    arguments = [_argument(rng, len(nodes)) for _ in range(rng.randrange(1, 4))]
    node = {
        "does": rng.choice(("make", "make", "call")),
        "operator": operator,
        "args": arguments,
        "kwargs": {},
    }
    # References to later nodes stay right, since nothing but the returned value comes after it.
    nodes.insert(len(nodes) - 1, node)
    if rng.random() < 0.3:
        nodes[-1]["value"] = rng.choice(({"node": len(nodes) - 2}, 0.5, None, [{"node": 0}], {"text": "x"}))
    path.write_text(json.dumps(document), encoding="utf-8")
    _rehash(path.parent)


def _argument(rng: random.Random, nodes: int) -> Any:
    kind = rng.randrange(4)
    if kind == 0:
        return {"node": rng.randrange(nodes)}
    if kind == 1:
        return [rng.choice(HUGE) for _ in range(rng.randrange(3))]
    return rng.choice(HUGE)


def tensors_damage(rng: random.Random, path: Path, other: bytes) -> None:
    edited = mutations.tensors(rng, load_file(path))
    save_file({name: value.contiguous() for name, value in edited.items()}, path)
    if rng.random() < 0.9:
        _rehash(path.parent)


def _rehash(folder: Path) -> None:
    """Write the hashes anew, so that the damage behind them is reached."""
    file = next(
        (folder / name for name in ("ensemble.json", "frozen.json") if (folder / name).is_file()), None
    )
    if file is None:
        return
    document = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(document, dict) or not isinstance(document.get("sha256"), dict):
        return
    del document["sha256"]
    hashes = {"weights": file_hash(folder / "weights.safetensors"), "settings": document_hash(document)}
    file.write_text(json.dumps(document | {"sha256": hashes}), encoding="utf-8")


def pickle_damage(rng: random.Random, path: Path, other: bytes) -> None:
    state = torch.load(path, weights_only=True)
    known = mutations.places(state)
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.choice(known)
        parent = state
        try:
            for name in place[:-1]:
                parent = parent[name]
            found = parent[place[-1]]
        # An earlier edit removed it.
        except (KeyError, IndexError, TypeError):
            continue
        if isinstance(found, torch.Tensor) and rng.random() < 0.8:
            parent[place[-1]] = mutations.tensor(rng, found)
        elif rng.random() < 0.3:
            del parent[place[-1]]
        else:
            parent[place[-1]] = mutations.value(rng)
    torch.save(state, path)


def arrays_damage(rng: random.Random, path: Path, other: bytes) -> None:
    with np.load(path) as archive:
        arrays = dict(archive)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(arrays))
        if rng.random() < 0.15:
            arrays[rng.choice(("x", "y_val", "x_val", "x_ood", "a/b", ""))] = arrays.pop(name)
        else:
            arrays[name] = mutations.array(rng, arrays[name])
    np.savez(path, **arrays)


def array_damage(rng: random.Random, path: Path, other: bytes) -> None:
    np.save(path, mutations.array(rng, np.load(path)))


def rows_damage(rng: random.Random, path: Path, other: bytes) -> None:
    """Write a request of another shape, with other numbers, or with something else among them."""
    odd = (
        "a" * rng.choice((1, 1_000_000)),
        None,
        True,
        2**63,
        2**64,
        10**400,
        1e308,
        -0.0,
        [],
        [1],
        {},
        {"a": 1},
    )
    width, count = rng.choice((0, 1, 2, 2, 2, 3, 3000)), rng.choice((0, 1, 1, 64, 65, 300))
    rows: list[Any] = [[rng.choice((1, 2, 0.5, True)) for _ in range(width)] for _ in range(count)]
    for _ in range(rng.randrange(3)):
        if rows and isinstance(rows[-1], list):
            rows[-1].append(rng.choice(odd))
    if rng.random() < 0.2:
        rows = [rng.choice(odd)] * count
    document = json.loads(path.read_text(encoding="utf-8"))
    if "rows" in document:
        document["rows"] = rows
    else:
        sizes = (0, 1, 2, 2**31, 2**62, 2**63 - 1)
        shape = [rng.choice(sizes) for _ in range(rng.choice((1, 2, 2, 3, 16)))]
        document["inputs"][0]["shape"] = rng.choice((shape, [count, width]))
        document["inputs"][0]["data"] = rng.choice(
            (rows, [cell for row in rows if isinstance(row, list) for cell in row])
        )
    path.write_text(json.dumps(document), encoding="utf-8")


def example_damage(rng: random.Random, path: Path, other: bytes) -> None:
    """Damage a body of a request, which is one line of JSON, or JSON and numbers behind it."""
    json_damage(rng, path, other)
    if rng.random() < 0.2:
        bytes_damage(rng, path, other)


def database_damage(rng: random.Random, path: Path, other: bytes) -> None:
    """Change one cell of a database of SQLite."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        filled = [name for name in tables if database.execute(f"select count(*) from {name}").fetchone()[0]]
        table = rng.choice(filled)
        columns = [row[1] for row in database.execute(f"pragma table_info({table})")]
        column = rng.choice(columns)
        row, before = rng.choice(database.execute(f"select rowid, {column} from {table}").fetchall())
        after: Any = rng.choice((None, -1, 10**12, 0.5, float("inf"), "", "x", "[[[", b"\xff", "null", "{}"))
        if isinstance(before, str) and rng.random() < 0.6:
            after = mutations.text(rng, before)
        with contextlib.suppress(sqlite3.IntegrityError, UnicodeEncodeError), database:
            database.execute(f"update {table} set {column} = ? where rowid = ?", (after, row))
