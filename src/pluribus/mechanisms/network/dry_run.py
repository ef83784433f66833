"""Running the user's network once to learn something, without leaving a trace."""

import logging
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs

ALIKE: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
"""Of random numbers that a seed stands for, whatever torch's default precision and device are."""


def derived_seed(seed: int, index: int) -> int:
    """A seed of torch's that follows from a seed of any size and an index."""
    return (seed * 1_000_003 + index) % (1 << 63)


@contextmanager
def seeded(seed: int, tensors: Iterable[Tensor] = ()) -> Iterator[None]:
    """Starts torch's random numbers from `seed`, on the CPU and the tensors' devices, and restores them."""
    devices = {tensor.device for tensor in tensors if tensor.device.type not in ("cpu", "meta")}
    kind = next((device.type for device in devices), "cuda")
    with torch.random.fork_rng([device.index for device in devices], device_type=kind):
        torch.manual_seed(derived_seed(seed, 0))
        yield


@contextmanager
def accepting(inputs: Inputs) -> Iterator[None]:
    """Whatever the user's code raises on these inputs says that they are no example."""
    try:
        yield
    except Exception as error:
        raise InputError(
            f"example must be an input of the network, however: on {inputs} it raised "
            f"{type(error).__name__}: {error}"
        ) from error


@contextmanager
def silence() -> Iterator[None]:
    """Keeps what torch writes of its own failures, graphs and logs, from the user."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with redirect_stderr(StringIO()):
            yield
    finally:
        logging.disable(before)


@contextmanager
def dry_run(module: nn.Module, training: bool) -> Iterator[None]:
    """A context in which `module` may run in one mode; its modes, its buffers and torch's random
    numbers are afterwards as they were. What it warns of, it warns of again in a real run.
    """
    modes = {layer: layer.training for layer in module.modules()}
    buffers = {layer: dict(layer._buffers) for layer in module.modules()}
    values = {id(buffer): buffer.clone() for buffer in module.buffers()}
    try:
        with seeded(0, module.parameters()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module.train(training)
            yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
        with torch.no_grad():
            for layer, held in buffers.items():
                layer._buffers.clear()  # the run may have registered others, or assigned them anew
                layer._buffers.update(held)
                for buffer in held.values():
                    if buffer is not None:
                        buffer.copy_(values[id(buffer)])
