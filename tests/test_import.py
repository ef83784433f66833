"""Importing Pluribus is light."""

import subprocess
import sys

LIGHT = {"pluribus", "safetensors"}


def test_import_pulls_in_nothing_but_the_core():
    code = (
        "import sys, torch; before = set(sys.modules); import pluribus;"
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extra = set(done.stdout.split()) - LIGHT - set(sys.stdlib_module_names) - {"torch", "numpy"}
    assert not extra


def test_import_does_not_load_torchs_compiler():
    code = "import pluribus, sys; print('torch._dynamo' in sys.modules, 'torch._inductor' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
