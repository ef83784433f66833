"""The testbed trains on a GPU, as far as can be seen without one."""

import os
import subprocess
import sys

import pytest

from pluribus.testbed.presets import PRESETS

QUICK = ["emp", "hypermodel_random_features"]


@pytest.mark.parametrize(
    "names", [QUICK, pytest.param([name for name in PRESETS if name not in QUICK], marks=pytest.mark.slow)]
)
def test_presets_train_where_the_protocol_says(names):
    command = [sys.executable, "-W", "ignore", "-m", "tests.testbed.on_device", ",".join(names)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2:] == [f"checked {len(names)}", ""]
    assert done.stdout.strip() == f"checked {len(names)}"
