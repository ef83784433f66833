"""One CPU without Fabric: the same weights, and only where Fabric would do nothing else."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import two_moons
from pluribus.methods import DeepEnsembles
from pluribus.training import Training, one_cpu, train
from pluribus.training.one_cpu import OneCPU


@pytest.mark.parametrize("clip", [None, 0.1])
def test_one_cpu_trains_to_the_weights_of_fabric(clip):
    from lightning_fabric import Fabric

    ended = []
    for fabric in (OneCPU(), Fabric(accelerator="cpu", devices=1)):
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
        ensemble = pl.convert(network, DeepEnsembles(members=2))
        settings = Training(epochs=2, batch=32, lr=0.1, clip=clip)
        history = train(ensemble, two_moons(train=64), settings, fabric=fabric, show=False)
        ended.append((ensemble.state_dict(), history))
    assert_close(*ended, rtol=0, atol=0)


def test_training_on_a_plain_cpu_does_not_import_fabric():
    code = (
        "import sys; from pluribus.training import loop; fabric = loop.make_fabric('cpu');"
        "print(type(fabric).__name__, 'lightning_fabric' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["OneCPU", "False"]


@pytest.mark.parametrize(
    ("arguments", "enough"),
    [
        (("cpu", 1, "32-true"), True),
        (("cpu", 2, "32-true"), False),
        (("cpu", 1, "bf16-mixed"), False),
        (("cuda", 1, "32-true"), False),
    ],
)
def test_one_cpu_is_enough_for_one_process_in_full_precision(arguments, enough):
    assert one_cpu.is_enough(*arguments) is enough


def test_a_launcher_of_processes_or_a_gpu_needs_fabric(monkeypatch):
    monkeypatch.setattr(one_cpu, "_has_accelerator", lambda: True)
    assert not one_cpu.is_enough("auto", 1, "32-true")
    assert one_cpu.is_enough("cpu", 1, "32-true")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert not one_cpu.is_enough("cpu", 1, "32-true")
