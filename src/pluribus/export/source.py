"""Source: everything of an ensemble that an export needs, without the ensemble."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from pluribus.errors import ExportError
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.prediction import Prediction

CONSTANT = bool | int | float | str | None
"""Inputs that become constants of the graph."""


@dataclass(frozen=True, eq=False)
class Source:
    """What is exported.

    Attributes:
        module: Takes the network's inputs and returns the outputs of all members, `[members, batch, ...]`.
        example: Inputs of the network, to read the data flow with.
        forward: Of the network, whose parameters name the inputs.
        likelihood: The meaning of the outputs.
        weights: How much each member counts, `[members]`.
        predict: Computes what the file must compute.
        facts: Entries for the description of the file, such as the method; values that JSON can hold.
    """

    module: nn.Module
    example: Inputs
    forward: Callable[..., Any]
    likelihood: Likelihood
    weights: Tensor
    predict: Callable[[Inputs], Prediction]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def input_names(self) -> list[str]:
        """Return the names of all inputs of the example, positional ones first.

        Raises:
            ExportError: An input is neither a tensor nor a plain value.
        """
        names = [*_positional_names(self.forward, len(self.example.args)), *self.example.keywords]
        for name, value in zip(names, self.values(self.example), strict=True):
            if not isinstance(value, Tensor | CONSTANT):
                raise ExportError(
                    f"input {name} must be a tensor or a plain value, got {type(value).__name__}. "
                    "Wrap the network in a module that takes tensors alone."
                )
        return names

    def tensor_names(self) -> list[str]:
        """Return the names of the inputs that are tensors: the inputs of the file."""
        named = zip(self.input_names(), self.values(self.example), strict=True)
        return [name for name, value in named if isinstance(value, Tensor)]

    @staticmethod
    def values(inputs: Inputs) -> list[Any]:
        """Return all values of a call, positional ones first."""
        return [*inputs.args, *inputs.keywords.values()]

    def named_tensors(self, inputs: Inputs) -> dict[str, Tensor]:
        """Return the tensors of a call by the names of the file's inputs."""
        named = zip(self.input_names(), self.values(inputs), strict=True)
        return {name: value for name, value in named if isinstance(value, Tensor)}


def _positional_names(forward: Callable[..., Any], count: int) -> list[str]:
    """Return the names of the first positional parameters of a function."""
    names = list[str]()
    for parameter in inspect.signature(forward).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            # `forward(*parts)` has one name for all of them.
            names += [f"{parameter.name}_{place}" for place in range(count - len(names))]
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    return names[:count]
