"""Engine: one way of running rows. `engines.py` has the list of them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.skeleton import Modes
from pluribus.mechanisms.network.inputs import Inputs


@dataclass(eq=False, slots=True)
class Job:
    """Rows to run.

    Attributes:
        members: Whose rows.
        rows: The rows.
        inputs: One batch for all rows, or one for each of them.
        modes: The mode of each module of the user's code.
        memory: The most bytes of activations that may be alive at once; None is no bound.
        watch: Called at each exit of a network with exits, as soon as it is reached.
        planned: The rows as a plan runs them, found when that engine was considered.
    """

    members: Members
    rows: tuple[Row, ...]
    inputs: tuple[Inputs, ...]
    modes: Modes
    memory: int | None = None
    watch: Any = None
    planned: Any = None

    @property
    def training(self) -> bool:
        """Return whether the network itself is in train mode."""
        return self.modes[0]

    @property
    def together(self) -> bool:
        """Return whether all rows see one batch."""
        return len(self.inputs) == 1

    def each(self) -> Sequence[Inputs]:
        """Return the batch of each row."""
        return self.inputs * len(self.rows) if self.together else self.inputs


class Engine(ABC):
    """One way of running rows."""

    @property
    def name(self) -> str:
        """How `explain` calls it."""
        return type(self).__name__

    @abstractmethod
    def why_not(self, job: Job) -> str:
        """Return why the rows cannot run this way, or should not; empty where they can."""

    @abstractmethod
    def run(self, job: Job) -> Tensor | list[Tensor]:
        """Return the outputs of all rows: `[rows, batch, ...]`, or a list where each has its own batch."""
