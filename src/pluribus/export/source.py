"""Source: everything of an ensemble that an export needs, without the ensemble."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from pluribus.calibration_record import Calibration
from pluribus.export.file_format import Dynamic
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.prediction import Prediction


@dataclass(frozen=True, eq=False)
class Origin:
    """The ensemble that a frozen one was made of.

    Attributes:
        example: Inputs of the network; None if there was no example.
        facts: Entries for the description of a file, such as the method; values that JSON can hold.
    """

    example: Inputs | None
    facts: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Source:
    """The graph to export, with everything that is needed to describe it and to check the file.

    Attributes:
        module: Takes tensors by position and returns the outputs of all members, `[members, batch, ...]`.
        names: Of these tensors: the parameters of the network's `forward`.
        select: Returns these tensors among the inputs of a call of the network.
        example: Inputs of the network, to read the data flow with.
        likelihood: The meaning of the outputs.
        weights: How much each member counts, `[members]`.
        predict: Computes what the file must compute.
        calibration: Corrects the outputs, as those of `predict`; None if nothing was calibrated.
        small: The same as `module`, with large weights computed from what they are made of; None is `module`.
        facts: Entries for the description of the file, such as the method; values that JSON can hold.
        read_with: Reads the network again for inputs with these free sizes, by input and axis, and returns
            None where it cannot; None for an ensemble that is frozen already.
    """

    module: nn.Module
    names: Sequence[str]
    select: Callable[[Inputs], Sequence[Tensor]]
    example: Inputs
    likelihood: Likelihood
    weights: Tensor
    predict: Callable[[Inputs], Prediction]
    calibration: Calibration | None = None
    small: nn.Module | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    read_with: "Callable[[Dynamic], Source | None] | None" = None

    def tensors(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tensors of a call by the names of the file's inputs."""
        return dict(zip(self.names, self.select(inputs), strict=True))

    def example_with(self, dynamic: Dynamic) -> Inputs:
        """Return the example with free sizes, by input and axis."""
        named, free = self.tensors(self.example), dict[int, frozenset[int]]()
        for place, tensor in enumerate(self.example.tensors()):
            for name, axes in dynamic.items():
                if named[name] is tensor:
                    free[place] = frozenset(axes)
        return replace(self.example, free=free)
