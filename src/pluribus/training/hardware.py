"""Hardware: where to compute, on how many devices, and in which precision."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError
from pluribus.ranges import check
from pluribus.training.loop import make_fabric
from pluribus.training.one_cpu import PRECISIONS, OneCPU

if TYPE_CHECKING:
    from lightning_fabric import Fabric

PLAIN = "32-true"
MIXED = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
"""Precisions in which a trained ensemble may predict besides float32, with their type."""


@dataclass(frozen=True)
class Hardware:
    """Accelerator, number of devices, and precision, by the names of Lightning Fabric.

    Attributes:
        accelerator: auto, cpu, cuda or mps.
        devices: How many devices. Training divides a batch among them; a comparison divides its runs.
        precision: 32-true, bf16-mixed, 16-mixed, or 64-true for inputs of float64.
        number: The device of one run of a comparison; None where all are used.
    """

    accelerator: str = "auto"
    devices: int = 1
    precision: str = PLAIN
    number: int | None = None

    def __post_init__(self) -> None:
        check("devices", self.devices, int, at_least=1)

    @property
    def is_plain(self) -> bool:
        """Return whether it computes in float32."""
        return self.precision in PRECISIONS

    def fabric(self) -> "Fabric | OneCPU":
        """Return the Fabric to train with, or `OneCPU` where that is enough.

        Raises:
            SettingError: this machine does not have it.
        """
        devices: Any = self.devices if self.number is None else [self.number]
        return make_fabric(self.accelerator, devices, self.precision)

    def for_run(self, number: int) -> "Hardware":
        """Return the hardware of one run of a comparison; runs take turns on the devices.

        Raises:
            SettingError: several devices are wanted of a CPU, where workers do that.
        """
        if self.devices == 1:
            return self
        self._check_several()
        return replace(self, devices=1, number=number % self.devices)

    def for_worker(self) -> "Hardware":
        """Return the hardware of runs in a worker process that sees one device alone.

        Raises:
            SettingError: several devices are wanted of a CPU, where workers do that.
        """
        if self.devices == 1:
            return self
        self._check_several()
        return replace(self, devices=1)

    def check_one(self, purpose: str, remedy: str = "Use devices=1.") -> None:
        """Raise where there are several devices.

        Args:
            purpose: What needs one, with its verb.
            remedy: What to do instead.

        Raises:
            SettingError: there are several.
        """
        if self.devices > 1:
            raise SettingError(f"{purpose} 1 device, got {self.devices}. {remedy}")

    def _check_several(self) -> None:
        if self.accelerator == "cpu":
            raise SettingError(
                f"devices must be 1 to compare on a CPU, got {self.devices}. Use workers={self.devices}."
            )

    @contextlib.contextmanager
    def predicting(self, ensemble: Ensemble) -> Iterator[Ensemble]:
        """Move an ensemble to the device, and let it predict in the precision inside of the block.

        Raises:
            SettingError: several devices, or a precision that predictions do not have.
        """
        self.check_one("predictions need")
        if not self.is_plain and self.precision not in MIXED:
            raise SettingError(
                f"the precision of predictions must be {PLAIN}, {' or '.join(MIXED)}, got {self.precision!r}."
            )
        # Fabric chooses the device, and its own precision is for training.
        device = replace(self, precision=PLAIN).fabric().device
        ensemble.to(device)
        if self.is_plain:
            yield ensemble
            return
        with torch.autocast(device.type, MIXED[self.precision]):
            yield ensemble
