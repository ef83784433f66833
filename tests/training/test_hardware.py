"""Hardware: what it trains and predicts on, and what it refuses."""

import pytest
import torch

import pluribus as pl
from pluribus.methods import DeepEnsembles
from pluribus.training.hardware import Hardware
from pluribus.training.one_cpu import OneCPU

CPU = Hardware("cpu")


def ensemble():
    torch.manual_seed(0)
    return pl.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2)).eval()


def test_one_cpu_needs_no_fabric():
    assert isinstance(CPU.fabric(), OneCPU)


def test_runs_take_turns_on_devices():
    numbers = [Hardware("cuda", 2).for_run(run).number for run in range(5)]
    assert numbers == [0, 1, 0, 1, 0]
    assert CPU.for_run(3) is CPU
    with pytest.raises(pl.SettingError, match="Use workers=2"):
        Hardware("cpu", 2).for_run(0)


def test_a_worker_has_one_device():
    assert Hardware("cuda", 2).for_worker() == Hardware("cuda", 1)
    assert CPU.for_worker() is CPU
    with pytest.raises(pl.SettingError, match="Use workers=2"):
        Hardware("cpu", 2).for_worker()


def test_predictions_are_in_the_precision_inside_of_the_block():
    made, x = ensemble(), torch.randn(4, 3)
    with CPU.predicting(made):
        assert made(x).dtype == torch.float32
    with Hardware("cpu", precision="bf16-mixed").predicting(made):
        assert made(x).dtype == torch.bfloat16
    assert made(x).dtype == torch.float32


@pytest.mark.parametrize(
    ("hardware", "message"),
    [
        (Hardware("cpu", 2), "predictions need 1 device, got 2"),
        (Hardware("cpu", precision="64-true"), "precision of predictions must be 32-true, bf16-mixed or"),
    ],
)
def test_predictions_refuse_what_they_do_not_have(hardware, message):
    with pytest.raises(pl.SettingError, match=message), hardware.predicting(ensemble()):
        pass


def test_devices_are_counted_from_one():
    with pytest.raises(pl.SettingError, match="devices must be"):
        Hardware(devices=0)
