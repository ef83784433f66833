"""Exporting: trace, write, verify, and only then move the file to its place."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram

from pluribus.errors import ExportError, SettingError
from pluribus.export.description import describe
from pluribus.export.file_format import Dynamic, FileFormat
from pluribus.export.head import Pooled
from pluribus.export.onnx import Onnx
from pluribus.export.openvino import OpenVino
from pluribus.export.pt2 import PT2
from pluribus.export.source import Source
from pluribus.export.tracing import free_sizes, size_rules, trace
from pluribus.export.verification import verify
from pluribus.ranges import check, invalid
from pluribus.untrusted import file_hash
from pluribus.writing import explaining, remove, remove_stale, unfinished_name

FORMATS: dict[str, FileFormat] = {form.name: form for form in (Onnx(), PT2(), OpenVino())}


def export_file(
    path: str | Path,
    source: Source,
    *,
    format: str = "onnx",
    members: bool = False,
    dynamic: Dynamic | None = None,
    level: float = 0.9,
) -> Path:
    """Write an ensemble to one file, with a description beside it, and return the file's path.

    The file is written to a hidden folder, run there on fresh inputs and compared with `predict`. Only if
    both agree is it moved to its place.

    Args:
        path: The file. The suffix of the format is added where it has none.
        source: What is exported.
        format: One of `FORMATS`.
        members: Whether the outputs of all members are among the outputs.
        dynamic: By input and axis, the names of free sizes, such as `{"x": {2: "height", 3: "width"}}`.
        level: Of the interval of a Gaussian, in (0, 1).

    Raises:
        SettingError: An argument is unknown or out of range.
        ExportError: A package is missing, the ensemble is no single graph of a sensible size, or the file
            does not compute what `predict` computes.
        WriteError: The file cannot be written.
    """
    form = find_format(format)
    check("members", members, bool)
    if not 0 < level < 1:
        raise invalid("level", "above 0 and below 1", level)
    form.load_packages()
    target, dynamic = _with_suffix(Path(path), form), dynamic or {}
    try:
        _write_checked(target, source, form, members, level, dynamic)
    except ExportError:
        # A graph that was read with one size may hold it as a number, as attention does when it cuts heads.
        again = source.read_with(dynamic) if dynamic and source.read_with else None
        if again is None:
            raise
        _write_checked(target, again, form, members, level, dynamic)
    return target


def _write_checked(
    target: Path, source: Source, form: FileFormat, members: bool, level: float, dynamic: Dynamic
) -> None:
    """Write the file of an ensemble beside its place, run it there, and only then move it.

    Args:
        target: The place.
        source: What is exported.
        form: The format.
        members: Whether the outputs of all members are among the outputs.
        level: Of the interval of a Gaussian.
        dynamic: By input and axis, the names of free sizes.

    Raises:
        ExportError: As `export_file`.
    """
    source, pooled, sizes, program = _traced(source, form, members, level, dynamic)
    description = describe(source, pooled, form, sizes)
    rules = size_rules(program, sizes)
    description["sizes"] = {name: rule.to_dict() for name, rule in rules.items()}
    remove_stale(target)
    folder = target.with_name(unfinished_name(target.name))
    try:
        with explaining(target):
            folder.mkdir(parents=True)
            form.write(program, folder / target.name, sizes, json.dumps(description))
            file, names = folder / target.name, list(pooled.outputs)
            found = verify(file, form, source, names, dynamic, pooled.level, rules)
            description["verified"] = {
                "calls": list(found.calls),
                "tolerance": form.tolerance,
                "largest_difference": found.largest,
            }
            _write_description(folder / target.name, description)
            _put_in_place(folder, target.parent)
    finally:
        remove(folder)


def _traced(
    source: Source, form: FileFormat, members: bool, level: float, dynamic: Dynamic
) -> tuple[Source, Pooled, Dynamic, ExportedProgram]:
    """Return what is exported as a format wants it, its module, its free sizes and its graph."""
    if form.computes_weights and source.small is not None:
        source = replace(source, module=source.small)
    pooled = Pooled(source, members, level)
    sizes = free_sizes(source, dynamic)
    return source, pooled, sizes, trace(source, pooled, sizes)


def find_format(name: object) -> FileFormat:
    """Return the format of a name; raise `SettingError` where there is none."""
    if isinstance(name, str) and name in FORMATS:
        return FORMATS[name]
    raise invalid("format", f"one of {', '.join(FORMATS)}", name, FORMATS)


def description_path(path: Path) -> Path:
    """Return the path of the description of a file."""
    return path.with_name(f"{path.name}.json")


def _with_suffix(path: Path, form: FileFormat) -> Path:
    """Return a path with the suffix of a format; raise where it has that of another."""
    if path.suffix == form.suffix:
        return path
    for other in FORMATS.values():
        if path.suffix == other.suffix:
            raise SettingError(
                f"path must end with {form.suffix} for format {form.name!r}, got {path.name}. "
                f"Pass format={other.name!r}."
            )
    return path.with_name(path.name + form.suffix)


def _write_description(path: Path, description: dict[str, Any]) -> None:
    """Write the description of a file beside it, with the file's hash."""
    description["sha256"] = file_hash(path)
    description_path(path).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def _put_in_place(folder: Path, target: Path) -> None:
    """Move all files of a folder to another, the descriptions last."""
    files = sorted(folder.iterdir(), key=lambda file: file.suffix == ".json")
    for file in files:
        os.replace(file, target / file.name)
