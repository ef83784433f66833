"""The house: imports point one way, files and functions are short, and no name is a drawer for everything."""

import ast
import graphlib
from pathlib import Path

import pytest

import pluribus

SOURCE = Path(pluribus.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))

ORDER = [
    {"errors", "version"},
    {"settings"},
    {"mechanisms.network", "mechanisms.graph"},
    {"mechanisms.widths", "mechanisms.members"},
    {"conversion_record", "prediction", "likelihood", "checkpoint"},
    {"metrics", "calibration", "data", "backbones"},
    {"method"},
    {"mechanisms.masks", "mechanisms.exits", "mechanisms.dropout"},
    {"methods"},
    {"mechanisms.running", "mechanisms.ranking"},
    {"ensemble", "conversion", "loading"},
    {"training"},
    {"comparison"},
    {"report"},
    {"cli"},
]
"""Parts of the library; each may import from its own line and from those above it."""

TOP = "__init__"
LONGEST_FILE, LONGEST_FUNCTION = 400, 40
DRAWERS = {"utils", "util", "helpers", "helper", "base", "common", "misc", "core", "tools"}


def module(file):
    """The dotted name below pluribus; a package is the name of its folder."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == TOP and len(parts) > 1 else parts)


def imports(file):
    """The dotted names below pluribus that a file imports, and all others."""
    ours, others = set(), set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            root, _, rest = name.partition(".")
            (ours if root == "pluribus" else others).add(rest if root == "pluribus" else name)
    known = {module(one) for one in FILES}
    return {name if name in known else name.rpartition(".")[0] for name in ours}, others


def part_of(name):
    """The part of the library that a module belongs to: its first name, of mechanisms its first two."""
    names = name.split(".")
    return ".".join(names[: 2 if names[0] == "mechanisms" else 1])


def level(part):
    return next((index for index, parts in enumerate(ORDER) if part in parts), None)


@each_file
def test_every_part_has_its_place_in_the_order(file):
    part = part_of(module(file))
    assert part in (TOP, "mechanisms") or level(part) is not None, f"give {part} a place in ORDER"


@each_file
def test_imports_point_one_way(file):
    part = part_of(module(file))
    if part in (TOP, "mechanisms"):
        return
    for name in imports(file)[0]:
        other = part_of(name)
        assert name or part == "cli", f"{module(file)} imports the whole library"
        assert not name or level(other) <= level(part), f"{module(file)} imports {name}"


def test_imports_have_no_circle():
    graph = {module(file): imports(file)[0] - {module(file)} for file in FILES if module(file) != TOP}
    for file in FILES:  # a package is read before its modules
        package = module(file).rpartition(".")[0]
        if package in graph:
            graph[module(file)] = graph[module(file)] - {package}
    assert list(graphlib.TopologicalSorter(graph).static_order())


@each_file
def test_methods_do_not_import_one_another(file):
    if module(file).startswith("methods."):
        assert not [name for name in imports(file)[0] if name.partition(".")[0] == "methods"]


@each_file
def test_every_file_has_its_test(file):
    place = file.relative_to(SOURCE)
    if place.name not in (f"{TOP}.py", "__main__.py"):
        assert (Path(__file__).parent / place.parent / f"test_{place.name}").is_file()


@each_file
def test_nothing_imports_from_the_tests(file):
    assert not [
        name for name in imports(file)[1] if name.partition(".")[0] in ("tests", "pytest", "hypothesis")
    ]


@each_file
def test_files_are_short(file):
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


def length(function):
    """Lines of a function without decorators and docstring."""
    lines = function.end_lineno - function.lineno + 1
    first = function.body[0]
    documented = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
    return lines - (first.end_lineno - first.lineno + 1 if documented else 0)


@each_file
def test_functions_are_short(file):
    tree = ast.parse(file.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert {node.name: length(node) for node in functions if length(node) > LONGEST_FUNCTION} == {}


@each_file
def test_no_name_is_a_drawer_for_everything(file):
    assert not set(module(file).split(".")) & DRAWERS
