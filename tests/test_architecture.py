"""The house: imports point one way, every file has its test, and no name is a drawer for everything.

Each test lists all offenders of one fact, so that a failure is a list of places to mend.
"""

import ast
import graphlib
from pathlib import Path

import pluribus

SOURCE = Path(pluribus.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {file: ast.parse(file.read_text(encoding="utf-8")) for file in FILES}

ORDER = [
    {"notebook", "errors", "version"},
    {
        *("deprecation", "axes", "ranges", "settings", "schema", "untrusted", "writing"),
        *("quiet_import", "torch_files"),
    },
    {"mechanisms.network", "mechanisms.graph"},
    {"mechanisms.widths", "mechanisms.members"},
    {
        "conversion_record",
        "calibration_file",
        "calibration_record",
        "distance",
        "prediction",
        "summary",
        "likelihood",
        "saving",
        "weights",
    },
    {"metrics", "calibration", "data", "backbones", "monitoring"},
    {"export"},
    {"serving"},
    {"recipe", "method", "method_text", "network_name"},
    {"mechanisms.masks", "mechanisms.exits", "mechanisms.dropout"},
    {"methods"},
    {"mechanisms.running", "mechanisms.ranking"},
    {"adapters", "ensemble", "conversion", "document", "loading", "fingerprint", "validation_data"},
    {"training"},
    # `compare` prints the report of its records; the report reads records. Neither needs the other to load.
    {"comparison", "report"},
    {"search"},
    {"runs"},
    {"testbed"},
    # Doors to other tools; no part of the library needs them.
    {"huggingface", "lightning", "sklearn"},
    {"cli", "__main__"},
]
"""Parts of the library; each may import from its own line and from those above it."""

TOP = "__init__"
# Packages without content of their own, and the root, which offers names of every part.
UNORDERED = {TOP, "mechanisms"}
DRAWERS = {"utils", "util", "helpers", "helper", "base", "common", "misc", "core", "tools"}
TEST_PACKAGES = {"tests", "pytest", "hypothesis"}


def module(file):
    """Return the dotted name below pluribus; a package has the name of its folder."""
    parts = file.relative_to(SOURCE).with_suffix("").parts
    if parts[-1] == TOP and len(parts) > 1:
        parts = parts[:-1]
    return ".".join(parts)


MODULES = {module(file): file for file in FILES}


def imported_names(file):
    """Return the absolute dotted names that a file imports, `from a import b` as `a.b`."""
    names = set()
    for node in ast.walk(TREES[file]):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names.update(f"{start}.{alias.name}" for alias in node.names)
    return names


def imported_modules(file):
    """Return the modules of pluribus that a file imports; a name in a module counts as the module."""
    found = set()
    for name in imported_names(file):
        root, _, rest = name.partition(".")
        if root != "pluribus":
            continue
        found.add(rest if rest in MODULES else rest.rpartition(".")[0])
    return found


IMPORTS = {name: imported_modules(file) for name, file in MODULES.items()}


def part_of(name):
    """Return the part of the library that a module belongs to; each room of mechanisms is a part."""
    names = name.split(".")
    return ".".join(names[: 2 if names[0] == "mechanisms" else 1])


def level(name):
    """Return the line of ORDER that a module belongs to, or None."""
    for index, parts in enumerate(ORDER):
        if part_of(name) in parts:
            return index
    return None


def test_order_places_every_part():
    unplaced = {part_of(name) for name in MODULES if level(name) is None}
    assert unplaced == UNORDERED


def test_imports_are_absolute():
    assert [str(file) for file in FILES if any(name.startswith(".") for name in imported_names(file))] == []


def test_imports_point_one_way():
    offenders = []
    for name, imports in IMPORTS.items():
        if level(name) is None:
            continue
        for other in sorted(imports):
            # The command line alone may read the root, for the version and the public names.
            if other == "" and part_of(name) != "cli":
                offenders.append(f"{name} imports the whole library")
            elif level(other) is not None and level(other) > level(name):
                offenders.append(f"{name} imports {other}")
    assert offenders == []


def test_imports_have_no_circle():
    graph = {name: imports - {name} for name, imports in IMPORTS.items() if name != TOP}
    for name in graph:
        # A package is read before its modules, so a module depends on its package in any case.
        graph[name] = graph[name] - {name.rpartition(".")[0]}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_methods_do_not_import_one_another():
    offenders = []
    for name, imports in IMPORTS.items():
        if name.startswith("methods."):
            offenders += [f"{name} imports {other}" for other in imports if part_of(other) == "methods"]
    assert offenders == []


def test_every_file_has_its_test():
    missing = []
    for file in FILES:
        place = file.relative_to(SOURCE)
        if place.name in ("__init__.py", "__main__.py"):
            continue
        if not (Path(__file__).parent / place.parent / f"test_{place.name}").is_file():
            missing.append(str(place))
    assert missing == []


def test_source_does_not_import_from_the_tests():
    offenders = []
    for file in FILES:
        roots = {name.partition(".")[0] for name in imported_names(file)}
        if roots & TEST_PACKAGES:
            offenders.append(str(file))
    assert offenders == []


def test_no_name_is_a_drawer_for_everything():
    assert [name for name in MODULES if set(name.split(".")) & DRAWERS] == []


def test_private_names_of_torch_are_read_in_one_file():
    # They may change with any version of torch: one file has them, with a test for each.
    offenders = []
    for name, file in MODULES.items():
        if name == "mechanisms.network.torch_private":
            continue
        private = [one for one in imported_names(file) if one.startswith("torch.") and "._" in one]
        for node in ast.walk(TREES[file]):
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("torch._"):
                private.append(ast.unparse(node))
        offenders += [f"{name} reads {one}" for one in private if "torch.__" not in one]
    assert offenders == []
