"""Member: one row alone, a plain module."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.members import Surrounding
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.outputs import Output, select_output


class Select:
    """A forward hook that returns the prediction alone."""

    def __init__(self, output: Output) -> None:
        self.output = output

    def __call__(self, module: nn.Module, args: Any, returned: Any) -> Tensor:
        return select_output(returned, self.output)


class Member(nn.Module):
    """One row that is more than a network.

    Args:
        network: The user's network with this row's tensors.
        surrounding: What surrounds its runs, such as kept dropout masks.
        prior: A fixed network whose output is added.
        prior_scale: The factor of that output.
    """

    def __init__(
        self, network: nn.Module, surrounding: Surrounding | None, prior: nn.Module | None, prior_scale: float
    ) -> None:
        super().__init__()
        self.network, self.prior = network, prior
        self.surrounding, self.prior_scale = surrounding, prior_scale

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The row's prediction, `[batch, ...]`."""
        inputs = Inputs(args, kwargs)
        copied = inputs.copy()  # the network may write into what it is given
        with self.surrounding(self.network, inputs.batch) if self.surrounding else nullcontext():
            outputs: Tensor = self.network(*args, **kwargs)
        if self.prior is None:
            return outputs
        with torch.no_grad():
            prior: Tensor = self.prior(*copied.args, **copied.keywords)
        return outputs + self.prior_scale * prior
