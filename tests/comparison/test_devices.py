"""Devices: one GPU for each worker, tried without any."""

import os

import pytest

from pluribus.comparison.devices import VISIBLE, device_of, see_one_device


@pytest.mark.parametrize(
    ("devices", "visible", "expected"),
    [
        (2, None, ["0", "1", "0", "1", "0"]),
        (2, "", ["0", "1", "0", "1", "0"]),
        (3, "4, 7,9", ["4", "7", "9", "4", "7"]),
        (2, "GPU-a,GPU-b,GPU-c", ["GPU-a", "GPU-b", "GPU-a", "GPU-b", "GPU-a"]),
        # Fewer are visible than wanted: workers share those that there are.
        (3, "5", ["5"] * 5),
    ],
)
def test_workers_take_turns_on_the_visible_devices(devices, visible, expected):
    assert [device_of(worker, devices, visible) for worker in range(5)] == expected


def test_a_process_sees_its_device_alone(monkeypatch):
    monkeypatch.setenv(VISIBLE, "4,7")
    see_one_device(1, devices=2)
    assert os.environ[VISIBLE] == "7"
