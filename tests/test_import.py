"""Importing Pluribus is light."""

import subprocess
import sys

import pytest

import pluribus
from pluribus.methods import Single

LIGHT = {"pluribus", "safetensors"}


def test_import_pulls_in_nothing_but_the_core():
    code = (
        "import sys, torch; before = set(sys.modules); import pluribus;"
        "[getattr(pluribus, name) for name in pluribus.__all__];"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extra = set(done.stdout.split()) - LIGHT - set(sys.stdlib_module_names) - {"torch", "numpy"}
    assert not extra


def test_import_does_not_load_torchs_compiler():
    code = (
        "import pluribus, sys; [getattr(pluribus, name) for name in pluribus.__all__];"
        "print('torch._dynamo' in sys.modules, 'torch._inductor' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_import_waits_with_torch_until_a_name_is_used():
    code = (
        "import pluribus, sys; print('torch' in sys.modules); pluribus.convert; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_public_names_and_folders_are_listed_and_others_refused():
    assert set(pluribus.__all__) < set(dir(pluribus))
    assert pluribus.methods.Single is Single
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = pluribus.nonsense
