"""Pooled: a module with named inputs and outputs, from the inputs of the network to the ensemble's answer."""

import torch
from torch import Tensor, nn

from pluribus.export.naming import with_parameters
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
        self.forward = with_parameters(self._forward, source.names)
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
        ExportError: The likelihood has no form without checks.
    """
    # Two outputs for two members suffice for every likelihood of the library.
    outputs, weights = torch.zeros(2, 1, 2), torch.full((2,), 0.5)
    return type(likelihood.unchecked(outputs, weights))
