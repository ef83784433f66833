"""From numbers as they lie in a file to the numbers a network takes, and back."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


def unit(values: Tensor) -> Tensor:
    """Bytes as shares of 255, in [0, 1]; other numbers as they are, whole ones in float64."""
    if values.dtype == torch.uint8:
        return values.float().div_(255)
    return values if values.is_floating_point() else values.double()


@dataclass(frozen=True, eq=False)
class Scaling:
    """Scaling of inputs to `(values - mean) / std`; `mean` and `std` have, or extend to, a sample's shape.

    >>> scaling = Scaling.of_columns(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    >>> scaling.apply(torch.tensor([[1.0, 5.0], [3.0, 5.0], [5.0, 6.0]]))
    tensor([[-1.,  0.],
            [ 1.,  0.],
            [ 3.,  1.]])
    """

    mean: Tensor
    std: Tensor

    @classmethod
    def of_columns(cls, values: Tensor) -> Self:
        """Mean 0 and variance 1 over the samples `[count, ...]`; what is constant is only moved to 0."""
        values = values.double()
        constant = (values == values[:1]).all(0)
        mean = torch.where(constant, values[0], values.mean(0))  # a mean of equal numbers may be rounded
        return cls(mean, values.std(0, correction=0).masked_fill(constant, 1))

    @classmethod
    def of_channels(cls, images: Tensor) -> Self:
        """Mean 0 and variance 1 in each channel of images `[count, channels, height, width]`."""
        parts = [cls.of_columns(unit(images[:, c]).reshape(-1)) for c in range(images.shape[1])]
        mean, std = torch.stack([part.mean for part in parts]), torch.stack([part.std for part in parts])
        return cls(mean.reshape(-1, 1, 1), std.reshape(-1, 1, 1))

    def apply(self, values: Tensor) -> Tensor:
        """Values `[count, ...]` as the network takes them, in float32."""
        values = unit(values)
        return (values - self.mean.to(values)).div_(self.std.to(values)).float()

    def invert(self, values: Tensor) -> Tensor:
        """The values that `apply` made these of."""
        return values * self.std.to(values) + self.mean.to(values)


UNSCALED = Scaling(torch.zeros(()), torch.ones(()))


@dataclass(frozen=True, eq=False)
class Rescaled(Mapping[str, Tensor]):
    """Inputs by name, kept as they lie in the files and scaled when asked for."""

    raw: Mapping[str, Tensor]
    scaling: Scaling

    def __getitem__(self, name: str) -> Tensor:
        return self.scaling.apply(self.raw[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __contains__(self, name: object) -> bool:
        return name in self.raw
