"""Devices: give each worker process one GPU of its own."""

import os

VISIBLE = "CUDA_VISIBLE_DEVICES"


def device_of(worker: int, devices: int, visible: str | None) -> str:
    """Return the one device that a worker sees, as the value of `CUDA_VISIBLE_DEVICES`.

    Args:
        worker: Number of the worker, from 0. A worker that replaces a killed one has its number.
        devices: How many devices there are to share; further workers begin again with the first.
        visible: The value that holds for the parent, such as `4,7`; None if all are visible.

    Example:
        >>> [device_of(worker, 2, "4,7") for worker in range(3)]
        ['4', '7', '4']
    """
    names = [name.strip() for name in (visible or "").split(",") if name.strip()]
    # Names may be numbers or `GPU-…`; without any, devices are numbered from 0.
    choices = names[:devices] or [str(number) for number in range(devices)]
    return choices[worker % len(choices)]


def see_one_device(worker: int, devices: int) -> None:
    """Hide all devices but one from this process, before CUDA starts."""
    os.environ[VISIBLE] = device_of(worker, devices, os.environ.get(VISIBLE))
