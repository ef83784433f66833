"""Pooled: a module with named inputs and outputs, from the inputs of the network to the ensemble's answer."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import ExportError
from pluribus.export.outputs import level_of, meanings, pooled_outputs
from pluribus.export.source import Source
from pluribus.likelihood import Likelihood
from pluribus.prediction import Prediction


class Pooled(nn.Module):
    """All members and, behind them, the summaries of `Prediction` as a dict of tensors.

    The same code as for `predict` computes the summaries, so the file cannot drift from the library.

    Args:
        source: What is exported.
        members: Whether the outputs of all members are among the outputs.
        level: Of the interval of a Gaussian; a calibration has its own.
    """

    weights: Tensor

    def __init__(self, source: Source, members: bool, level: float) -> None:
        super().__init__()
        self.network, self.likelihood = source.module, source.likelihood
        self.calibration, self.level = source.calibration, level_of(source.calibration, level)
        self.register_buffer("weights", source.weights.detach().clone())
        self.outputs = meanings(_kind(source.likelihood), members, source.calibration)
        # torch.export names the inputs of the graph by the parameters of `forward`.
        self.forward = _named(self._forward, source.names)
        self.eval()

    def _forward(self, *tensors: Tensor) -> dict[str, Tensor]:
        """Return the outputs by name."""
        outputs: Tensor = self.network(*tensors)
        prediction = self.likelihood.unchecked(outputs, self.weights.to(_summary_dtype(outputs)))
        return pooled_outputs(prediction.calibrated(self.calibration), list(self.outputs), self.level)


def _summary_dtype(outputs: Tensor) -> torch.dtype:
    return torch.promote_types(outputs.dtype, torch.float32)


def _kind(likelihood: Likelihood) -> type[Prediction]:
    """Return the class of the predictions of a likelihood.

    Raises:
        ExportError: The likelihood cannot be exported.
    """
    # Two outputs for two members suffice for every likelihood of the library.
    outputs, weights = torch.zeros(2, 1, 2), torch.full((2,), 0.5)
    try:
        return type(likelihood.unchecked(outputs, weights))
    except NotImplementedError as error:
        raise ExportError(
            f"{type(likelihood).__name__} must have the method `unchecked` to be exported, got none. "
            "Write it: the same as `prediction`, without checks of values."
        ) from error


def _named(function: Any, names: Sequence[str]) -> Any:
    """Return a function whose signature has these names, and which calls `function` with their values."""
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    signature = inspect.Signature(parameters)

    def forward(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        return function(*bound.args)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward
