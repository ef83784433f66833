"""Importing Pluribus is light, and its names are found when they are used."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import pluribus as pl

LIGHT = {"pluribus", "safetensors"}
HEAVY = ("torch", "numpy", "safetensors")


def loaded(code):
    """Return which of the heavy packages a fresh interpreter has imported after some code."""
    end = f"; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", "import sys; " + code + end], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


def test_import_loads_no_torch():
    assert loaded("import pluribus; dir(pluribus); pluribus.__version__; pluribus.SettingError") == []


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["compare", "--help"]])
def test_help_loads_no_torch(arguments):
    code = (
        f"import contextlib; from pluribus.cli.start import main; sys.argv[1:] = {arguments}\n"
        "with contextlib.suppress(SystemExit): main()\n"
        "0"
    )
    assert loaded(code) == []


@pytest.mark.parametrize("name", pl.__all__)
def test_every_public_name_is_found(name):
    assert getattr(pl, name) is not None


def test_dir_shows_the_public_names_alone():
    import pluribus.settings  # a private module becomes an attribute of the package when it is imported

    assert dir(pl) == sorted(pl.__all__)
    assert pluribus.settings


def test_public_names_are_one_list():
    names = {*pl._FOLDERS, *pl._HOME_OF, "__version__"}
    assert names == set(pl.__all__)
    for name, module in pl._HOME_OF.items():
        assert hasattr(importlib.import_module(f"pluribus.{module}"), name)


def test_no_submodule_has_the_name_of_a_public_verb():
    submodules = {module.name for module in pkgutil.iter_modules(pl.__path__)}
    assert submodules & set(pl.__all__) == set(pl._FOLDERS)


def test_an_unknown_name_raises():
    with pytest.raises(AttributeError, match="module 'pluribus' has no attribute 'covnert'"):
        pl.covnert  # noqa: B018


def test_type_checkers_read_the_same_names():
    source = Path(pl.__file__).read_text(encoding="utf-8")
    guarded = next(node for node in ast.parse(source).body if isinstance(node, ast.If))
    names = {alias.name for line in guarded.body for alias in line.names}
    assert names == set(pl.__all__) - {"__version__"}


def test_using_the_library_pulls_in_nothing_but_the_core():
    code = (
        "import sys, torch; before = set(sys.modules); import pluribus; pluribus.convert;"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extra = set(done.stdout.split()) - LIGHT - set(sys.stdlib_module_names) - {"torch", "numpy"}
    assert not extra


def test_using_the_library_does_not_load_torchs_compiler():
    code = (
        "import pluribus, sys; pluribus.convert;"
        "print('torch._dynamo' in sys.modules, 'torch._inductor' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_method_may_be_named_by_its_folder_or_as_text():
    import torch

    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    assert pl.methods.DeepEnsembles(members=3).members == 3
    packed = pl.convert(network, "packed_ensembles(alpha=2)", example=torch.zeros(2, 4))
    assert packed.method == pl.methods.PackedEnsembles(alpha=2)
