"""Right on a GPU without one: all verbs keep the device and the precision of the network."""

import os
import subprocess
import sys

import pytest


def faults(*arguments):
    """Return the lines that the check printed, in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.contracts.on_device", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.strip().splitlines()
    assert last.startswith("checked")
    return [line for line in lines if line]


def test_a_pretended_device_is_kept():
    assert faults("mlp", "deep_ensembles,emp") == []


@pytest.mark.slow
@pytest.mark.parametrize("network", ["mlp", "residual_cnn", "mini_vit", "tied_embedding", "keywords", "lstm"])
def test_a_pretended_device_is_kept_by_every_method(network):
    assert faults(network) == []
