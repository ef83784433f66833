"""FileFormat: the interface of a format to export to."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.export import ExportedProgram

from pluribus.export.packages import load_packages

Dynamic = Mapping[str, Mapping[int, str]]
"""By input and axis, the name of a free size; axes with one name have one size."""

Run = Callable[[dict[str, Tensor]], dict[str, Tensor]]
"""Runs a file on inputs by name, and returns outputs by name. Threads may call it at once."""


class FileFormat(ABC):
    """A format of exported files.

    Attributes:
        name: As users write it.
        suffix: Of the file.
        tolerance: The largest difference from `predict` that rounding explains.
        packages: What must be installed to write and to run the file.
        extra: The extra of this library that installs them.
        computes_weights: Whether what runs the file computes weights from constants once, when it loads.
    """

    name: str
    suffix: str
    tolerance: float = 1e-5
    packages: tuple[str, ...] = ()
    extra: str = "export"
    computes_weights: bool = False

    def load_packages(self) -> list[Any]:
        """Return the packages; raise `ExportError` with the install line where one is missing."""
        return load_packages(f"format {self.name!r}", self.packages, self.extra)

    @abstractmethod
    def write(self, program: ExportedProgram, path: Path, sizes: Dynamic, description: str) -> None:
        """Write a graph to a file.

        Args:
            program: With named inputs and a dict of outputs.
            path: The file; a format may put others beside it.
            sizes: The free sizes of its inputs.
            description: A JSON text to put into the file, where it has room for one.
        """

    @abstractmethod
    def open(self, path: Path) -> Run:
        """Return a function that runs a file as its users will."""
