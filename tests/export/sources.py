"""Small sources for the tests of exporting: plain modules in place of ensembles, which are quick to trace."""

import torch
from torch import Tensor, nn

from pluribus.calibration_record import Calibration
from pluribus.export.source import Source
from pluribus.likelihood import Categorical, Likelihood
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.prediction import Prediction


class Stacked(nn.Module):
    """Three linear members of one input."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.weight = nn.Parameter(torch.randn(3, 4, outputs, generator=generator))

    def forward(self, image: Tensor) -> Tensor:
        return torch.einsum("bi,mio->mbo", image, self.weight)


def linear_source(
    likelihood: Likelihood | None = None,
    module: nn.Module | None = None,
    calibration: Calibration | None = None,
) -> Source:
    """Return a source of three members with unequal weights."""
    likelihood, module = likelihood or Categorical(), module or Stacked(outputs=4)
    weights = torch.tensor([0.5, 0.3, 0.2])
    module.requires_grad_(False)

    def predict(inputs: Inputs) -> Prediction:
        return likelihood.prediction(module(*inputs.args), weights).calibrated(calibration)

    return Source(
        module=module,
        names=("image",),
        select=lambda inputs: inputs.args,
        example=Inputs.of(torch.randn(2, 4, generator=torch.Generator().manual_seed(1))),
        likelihood=likelihood,
        weights=weights,
        predict=predict,
        calibration=calibration,
        facts={"method": {"kind": "three"}},
    )
