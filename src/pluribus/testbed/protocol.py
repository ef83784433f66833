"""Protocol: how problems are drawn, networks trained and models scored, the same for all methods."""

from dataclasses import dataclass, replace
from typing import Any

from pluribus.settings import Settings, setting

NOISES = ("relative", "absolute")
DIRECTIONS = ("code", "printed")


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
    """

    noise: str = setting("relative", choices=NOISES)
    direction: str = setting("code", choices=DIRECTIONS)
    as_in_paper: bool = setting(False)
    steps: int = setting(1000, at_least=1)
    batch: int = setting(100, at_least=1)
    rate: float = setting(1e-3, above=0)
    points: int = setting(1000, at_least=2)

    @property
    def training(self) -> dict[str, Any]:
        """Return what a result depends on: all but the direction, as both are kept."""
        return {
            "noise": self.noise,
            "as_in_paper": self.as_in_paper,
            "steps": self.steps,
            "batch": self.batch,
            "rate": self.rate,
            "points": self.points,
        }

    def in_direction(self, direction: str) -> "Protocol":
        """Return the same protocol, scored in another direction."""
        return replace(self, direction=direction)
