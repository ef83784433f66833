"""Running the user's network once to learn something, without leaving a trace."""

import logging
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import TorchDispatchMode, buffer_table, with_generator

# Random numbers that a seed stands for are drawn so, whatever torch's default precision and device are.
ALIKE: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}


def derived_seed(seed: int, index: int) -> int:
    """Return a seed for torch, below 2^63, that follows from a seed of any size and an index."""
    return (seed * 1_000_003 + index) % (1 << 63)


PROCESS = threading.RLock()
"""Held by everything that changes the state of the process: torch's random numbers, the standard error
stream, logging, and torch.export, which keeps its own state in globals.
"""


@contextmanager
def seeded(seed: int, tensors: Iterable[Tensor] = ()) -> Iterator[None]:
    """Start torch's random numbers from `seed`, on the CPU and the tensors' devices, and restore them.

    Only for code that takes no generator, such as initialisers: other threads that draw meanwhile get
    numbers of this seed.
    """
    devices = {tensor.device for tensor in tensors if tensor.device.type not in ("cpu", "meta")}
    kind = next((device.type for device in devices), "cuda")
    with PROCESS, torch.random.fork_rng([device.index for device in devices], device_type=kind):
        torch.manual_seed(derived_seed(seed, 0))
        yield


@contextmanager
def accepting(inputs: Inputs) -> Iterator[None]:
    """Raise whatever the user's code raises on these inputs as an error of the example."""
    try:
        yield
    except Exception as error:
        raise InputError(
            f"example must be an input of the network, got {inputs}, on which it raised "
            f"{type(error).__name__}: {error}"
        ) from error


@contextmanager
def silence() -> Iterator[None]:
    """Hide from the user what torch writes of its own failures: graphs and logs."""
    with PROCESS:
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with redirect_stderr(StringIO()):
                yield
        finally:
            logging.disable(before)


class PrivateRandom(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Give code random numbers of a seed without touching torch's global generator.

    A fork of the global generator would replay the numbers that another thread drew meanwhile.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        seedable = with_generator(func)
        # Some operators, such as fused attention with dropout, have no form that takes a generator.
        if seedable is None:
            with seeded(self.seed):
                return func(*args, **kwargs)
        device = kwargs.get("device") or next((a.device for a in args if isinstance(a, Tensor)), None)
        return seedable(*args, **kwargs, generator=self._generator(torch.device(device or "cpu")))

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self._generators[device]


@contextmanager
def dry_run(module: nn.Module, training: bool) -> Iterator[None]:
    """Let `module` run in one mode without leaving a trace.

    Its modes and its buffers are afterwards as they were, and torch's random numbers are not touched.
    Warnings are hidden: they come again in a real run.
    """
    with restored(module, training), PrivateRandom(0):
        yield


@contextmanager
def restored(module: nn.Module, training: bool) -> Iterator[None]:
    """Put `module` into one mode; give it its modes and its buffers back afterwards."""
    modes = {layer: layer.training for layer in module.modules()}
    buffers = {layer: dict(buffer_table(layer)) for layer in module.modules()}
    values = {id(buffer): buffer.clone() for buffer in module.buffers()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module.train(training)
            yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
        with torch.no_grad():
            for layer, held in buffers.items():
                # The run may have registered others, or assigned them anew.
                buffer_table(layer).clear()
                buffer_table(layer).update(held)
                for buffer in held.values():
                    if buffer is not None:
                        buffer.copy_(values[id(buffer)])
