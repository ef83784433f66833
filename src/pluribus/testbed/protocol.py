"""Protocol: how problems are drawn, networks trained and models scored, the same for all methods."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from pluribus.settings import Settings, setting

NOISES = ("relative", "absolute")
DIRECTIONS = ("code", "printed")
PRECISIONS = {"32-true": torch.float32, "64-true": torch.float64}
"""Of training, with their type. Mixed ones are left out: networks as small as these gain nothing by them."""


@dataclass(frozen=True)
class Protocol(Settings):
    """Settings of the testbed.

    Args:
        noise: `absolute` conditions the posterior on noise of the variance ε² that the targets have;
            `relative`, as in the authors' code, on ε² times the mean variance of the function.
        direction: `code` scores by KL(posterior ‖ model), as the authors' code does; `printed` by
            KL(model ‖ posterior), as their Eq. (2) prints it.
        as_in_paper: Whether a step draws as many random members as the authors' code does, with
            replacement. Otherwise Layer Ensembles and Deep Ensembles train all members in every step, and
            methods that draw weights take a few draws, which costs a fraction.
        steps: Training steps, at least 1.
        batch: Samples in a step, at least 1.
        rate: Learning rate of Adam, above 0.
        points: Test points, and validation points, at least 2.
        device: Where networks are trained and run; problems are drawn and scored on the CPU.
        precision: Of training.
    """

    noise: str = setting("relative", choices=NOISES)
    direction: str = setting("code", choices=DIRECTIONS)
    as_in_paper: bool = setting(False)
    steps: int = setting(1000, at_least=1)
    batch: int = setting(100, at_least=1)
    rate: float = setting(1e-3, above=0)
    points: int = setting(1000, at_least=2)
    device: str = setting("cpu")
    precision: str = setting("32-true", choices=tuple(PRECISIONS))

    @property
    def training(self) -> dict[str, Any]:
        """Return what a result depends on: all but the device, and the direction, as both are kept."""
        found = {
            "noise": self.noise,
            "as_in_paper": self.as_in_paper,
            "steps": self.steps,
            "batch": self.batch,
            "rate": self.rate,
            "points": self.points,
        }
        # Results of before there was a choice stay valid.
        return found if self.precision == "32-true" else found | {"precision": self.precision}

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of weights and data."""
        return PRECISIONS[self.precision]

    def in_direction(self, direction: str) -> "Protocol":
        """Return the same protocol, scored in another direction."""
        return replace(self, direction=direction)
