"""Heads: small layers that make predictions from a value inside of a network.

Ferianc, Fan and Rodrigues, "SAE: Single Architecture Ensemble Neural Networks", BMVC 2024. Of images, a 1x1
convolution to the width of the last layer, BatchNorm, ReLU and the average over all positions; of tokens,
a linear layer, GELU, LayerNorm and the average over all tokens; of vectors, a linear layer, BatchNorm and
ReLU; then one layer to the outputs of all slots. Where the network predicts at every position, nothing is
averaged, and images are enlarged to the size of the prediction. A training batch of one vector has no
variance and is normalised by the running statistics, which it leaves as they are.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pluribus.errors import ConversionError
from pluribus.mechanisms.exits.exit_points import Exit, ExitPoints

CONVOLUTIONS = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}
BATCH_NORMS = {3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
ENLARGING = {1: "linear", 2: "bilinear", 3: "trilinear"}


class Head(nn.Module):
    """Makes the outputs of several slots, `[batch, slots, *output]`, of one value.

    Args:
        exit: The value.
        points: Where the network ends.
        slots: How many.

    Attributes:
        features: What is computed before the last layer.
        last: A linear layer or a 1x1 convolution to the outputs of all slots, one slot after the other.
    """

    def __init__(self, exit: Exit, points: ExitPoints, slots: int) -> None:
        super().__init__()
        rank = len(exit.shape) + 1
        self.output, self.shape, self.rank = points.output, exit.shape, rank
        self.images, self.dense = exit.axis == 1 and rank in CONVOLUTIONS, len(points.output) > 1
        self.axis = points.axis
        self._check(exit, points)
        out = slots * (self.output[self._classes] if self.dense else prod(self.output))
        size = exit.shape[0] if self.images else exit.shape[-1]
        width = points.width if self.images else size
        self.last: nn.Module = nn.Linear(width, out)
        if self.images:
            layers = [CONVOLUTIONS[rank](size, width, 1), BATCH_NORMS[rank](width), nn.ReLU()]
            self.last = CONVOLUTIONS[rank](width, out, 1) if self.dense else self.last
        elif rank > 2:
            layers = [nn.Linear(size, width), nn.GELU(), nn.LayerNorm(width)]
        else:
            layers = [nn.Linear(size, width), nn.BatchNorm1d(width), nn.ReLU()]
        self.features = nn.Sequential(*layers)

    @property
    def _classes(self) -> int:
        """The axis of classes in the prediction without its batch axis."""
        return self.axis - 1 if self.axis > 0 else self.axis

    def _check(self, exit: Exit, points: ExitPoints) -> None:
        """Refuses a value of which no kind of head can make such a prediction."""
        kinds = self.images or exit.axis == -1
        if self.dense and self.images:
            fits = points.axis == 1 and len(points.output) == len(exit.shape)
        elif self.dense:
            places = [
                size
                for place, size in enumerate(points.output)
                if place != self._classes % len(points.output)
            ]
            fits = places == list(exit.shape[:-1])
        else:
            fits = True
        if not kinds or not fits:
            raise ConversionError(
                f"an exit must be an image, tokens or a vector that can be brought to {list(points.output)}, "
                f"however: the output of {exit.name} is {list(exit.shape)}, features on axis {exit.axis}. "
                "Name other modules to exit after."
            )

    def forward(self, value: Tensor) -> Tensor:
        features = value
        for layer in self.features:
            features = _run(layer, features)
        if not self.dense and self.rank > 2:
            features = features.flatten(2).mean(2) if self.images else features.flatten(1, -2).mean(1)
        made: Tensor = self.last(features)
        if not self.dense:
            return torch.unflatten(made, 1, (-1, *self.output)) if self.output else made
        if not self.images:
            made = made.movedim(-1, self.axis % made.ndim)
        elif self.shape[1:] != self.output[1:]:
            sizes = zip(made.shape[2:], self.output[1:], self.shape[1:], strict=True)
            size = [round(now * wanted / before) for now, wanted, before in sizes]
            mode = ENLARGING[len(self.output) - 1]
            made = F.interpolate(made, size=size, mode=mode, align_corners=False)
        return apart(made, self.axis, self.output)


def _run(layer: nn.Module, value: Tensor) -> Tensor:
    """A layer; BatchNorm of one number for each channel by its running statistics, in train mode too."""
    if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training and value[:, :1].numel() == 1:
        statistics = layer.running_mean, layer.running_var
        return F.batch_norm(value, *statistics, layer.weight, layer.bias, eps=layer.eps)
    made: Tensor = layer(value)
    return made


def apart(made: Tensor, axis: int, output: Sequence[int]) -> Tensor:
    """Takes the slots on the axis of classes apart: `[batch, slots, *output]`."""
    axis = axis % made.ndim
    return torch.unflatten(made, axis, (-1, output[axis - 1])).movedim(axis, 1)


def keep_rows(layer: nn.Module, rows: Sequence[int], slots: int) -> None:
    """Leaves a linear layer or a convolution the outputs of some of its slots, in that order."""
    with torch.no_grad():
        for name in ("weight", "bias"):
            tensor = getattr(layer, name)
            if tensor is not None:
                kept = torch.unflatten(tensor, 0, (slots, -1))[list(rows)].flatten(0, 1)
                setattr(layer, name, nn.Parameter(kept.clone(), tensor.requires_grad))
    name = "out_features" if isinstance(layer, nn.Linear) else "out_channels"
    setattr(layer, name, len(layer.weight))  # type: ignore[arg-type]
