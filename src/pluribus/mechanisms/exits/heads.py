"""Heads: small layers that make predictions from a value inside of a network.

Ferianc, Fan and Rodrigues, "SAE: Single Architecture Ensemble Neural Networks", BMVC 2024.

    value     layers, then one layer to the outputs of all slots
    image     1x1 convolution, BatchNorm, ReLU, mean over all positions; as many channels as the last
              layer reads, at most those of the network's last image
    tokens    linear layer, GELU, LayerNorm, mean over all tokens
    vector    linear layer, BatchNorm, ReLU

Where the network predicts at every position, nothing is averaged, and images are enlarged to the size of the
prediction. A training batch of one vector has no variance: it is normalised by the running statistics, and
leaves them unchanged.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pluribus.errors import ConversionError
from pluribus.mechanisms.exits.exit_points import Exit, ExitPoints
from pluribus.mechanisms.network.torch_private import BatchNorm

# By rank of the value: an image of one, two or three dimensions has a batch and a channel axis besides.
CONVOLUTIONS = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}
BATCH_NORMS = {3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
# By the number of an image's dimensions: torch names the same interpolation by it.
ENLARGING = {1: "linear", 2: "bilinear", 3: "trilinear"}


class Head(nn.Module):
    """Make the outputs of several slots, `[batch, slots, *output]`, from one value.

    Args:
        exit: The value.
        points: Where the network ends.
        slots: How many.

    Attributes:
        features: The layers before the last.
        last: A linear layer or a 1x1 convolution to the outputs of all slots, one slot after the other.

    Raises:
        ConversionError: no kind of head can make such a prediction from the value.
    """

    def __init__(self, exit: Exit, points: ExitPoints, slots: int) -> None:
        super().__init__()
        self.rank = len(exit.shape) + 1
        self.output, self.shape = points.output, exit.shape
        # A channel axis in front makes an image; a prediction at every position has axes besides the classes.
        self.images = exit.axis == 1 and self.rank in CONVOLUTIONS
        self.dense = len(points.output) > 1
        self.axis = points.axis
        self._check(exit, points)
        outputs = slots * self._outputs_of_slot()
        if self.images:
            self._build_for_images(exit.shape[0], points.head_width, outputs)
        else:
            self._build_for_vectors(exit.shape[-1], outputs)

    def _check(self, exit: Exit, points: ExitPoints) -> None:
        """Raise where no kind of head can make such a prediction from the value."""
        readable = self.images or exit.axis == -1
        if not readable or not self._fits(exit, points):
            raise ConversionError(
                f"an exit must be an image, tokens or a vector that can be brought to {list(points.output)}, "
                f"got the output of {exit.name}, {list(exit.shape)} with features on axis {exit.axis}. "
                "Name other modules to exit after."
            )

    def _fits(self, exit: Exit, points: ExitPoints) -> bool:
        """Return whether the positions of the value can be brought to those of the prediction."""
        if not self.dense:
            return True
        if self.images:
            return points.axis == 1 and len(points.output) == len(exit.shape)
        # Tokens cannot be enlarged: each must be a position of the prediction.
        positions = list(points.output)
        positions.pop(self._classes)
        return positions == list(exit.shape[:-1])

    @property
    def _classes(self) -> int:
        """Return the axis of classes in the prediction, the batch axis left out."""
        return self.axis - 1 if self.axis > 0 else self.axis

    def _outputs_of_slot(self) -> int:
        """Return how many numbers a slot needs at each position, or for each sample."""
        return self.output[self._classes] if self.dense else prod(self.output)

    def _build_for_images(self, channels: int, width: int, outputs: int) -> None:
        convolution, norm = CONVOLUTIONS[self.rank], BATCH_NORMS[self.rank]
        # The order of draws and of parameters is part of what a seed and an optimizer's state mean.
        self.last: nn.Module = nn.Linear(width, outputs)
        self.features = nn.Sequential(convolution(channels, width, 1), norm(width), nn.ReLU())
        if self.dense:
            self.last = convolution(width, outputs, 1)

    def _build_for_vectors(self, width: int, outputs: int) -> None:
        self.last = nn.Linear(width, outputs)
        if self.rank > 2:
            self.features = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        else:
            self.features = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())

    def forward(self, value: Tensor) -> Tensor:
        """Return the outputs of all slots, `[batch, slots, *output]`."""
        features = value
        for layer in self.features:
            features = _run(layer, features)
        if self.dense:
            return self._positions(self.last(features))
        if self.rank > 2:
            features = self._averaged(features)
        made: Tensor = self.last(features)
        # A prediction of one number for each sample has no axis besides the slots.
        return torch.unflatten(made, 1, (-1, *self.output)) if self.output else made

    def _averaged(self, features: Tensor) -> Tensor:
        """Return the mean over all positions of an image, or over all tokens."""
        if self.images:
            return features.flatten(2).mean(2)
        return features.flatten(1, -2).mean(1)

    def _positions(self, made: Tensor) -> Tensor:
        """Bring what the last layer made at every position to the shape of the prediction."""
        if not self.images:
            made = made.movedim(-1, self.axis % made.ndim)
        elif self.shape[1:] != self.output[1:]:
            made = self._enlarged(made)
        return apart(made, self.axis, self.output)

    def _enlarged(self, made: Tensor) -> Tensor:
        """Scale an image by the ratio of prediction to value in the example, so that other sizes fit too."""
        size = []
        for now, wanted, before in zip(made.shape[2:], self.output[1:], self.shape[1:], strict=True):
            size.append(round(now * wanted / before))
        mode = ENLARGING[len(self.output) - 1]
        return F.interpolate(made, size=size, mode=mode, align_corners=False)


def _run(layer: nn.Module, value: Tensor) -> Tensor:
    """Run a layer of a head."""
    single = value[:, :1].numel() == 1
    # torch raises in train mode where a channel has one number: its variance is zero.
    if single and isinstance(layer, BatchNorm) and layer.training:
        statistics = layer.running_mean, layer.running_var
        return F.batch_norm(value, *statistics, layer.weight, layer.bias, eps=layer.eps)
    made: Tensor = layer(value)
    return made


def apart(made: Tensor, axis: int, output: Sequence[int]) -> Tensor:
    """Split the axis of classes into slots and classes: `[batch, slots, *output]`."""
    axis = axis % made.ndim
    return torch.unflatten(made, axis, (-1, output[axis - 1])).movedim(axis, 1)


def keep_rows(layer: nn.Module, rows: Sequence[int], slots: int) -> None:
    """Keep the outputs of some slots of a linear layer or a convolution, in that order."""
    with torch.no_grad():
        for name in ("weight", "bias"):
            tensor = getattr(layer, name)
            if tensor is not None:
                kept = torch.unflatten(tensor, 0, (slots, -1))[list(rows)].flatten(0, 1)
                setattr(layer, name, nn.Parameter(kept.clone(), tensor.requires_grad))
    name = "out_features" if isinstance(layer, nn.Linear) else "out_channels"
    setattr(layer, name, len(layer.weight))  # type: ignore[arg-type]
