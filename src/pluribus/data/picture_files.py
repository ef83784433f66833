"""Pictures that are read from their files when they are needed: folders larger than memory.

Nothing but paths and classes is kept. Means and deviations of the channels are read in one pass over the
training pictures. Corrupted test pictures are made one by one, the same as those of pictures in memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor
from torch.utils.data import Dataset

from pluribus.data.corruptions import EXTRA_KINDS, KINDS, LEAST_SIDE, corrupt
from pluribus.data.pictures import Reading, read_pictures
from pluribus.data.scaling import UNSCALED, Scaling, unit
from pluribus.data.shifted import SEVERITIES
from pluribus.data.split import Split
from pluribus.errors import InputError

AT_ONCE = 64
"""Pictures in memory while the statistics of the channels are read."""


@final
class PictureFiles(Dataset[Any]):
    """Pictures with their classes, each read and scaled when it is needed.

    Args:
        paths: Of the files.
        y: Their classes, `[count]`.
        how: How they are read.
        kind: How all of them must be stored, such as `8-bit`.
        scaling: Applied to pictures in [0, 1].
        corruption: Kind and severity of a corruption before scaling; None leaves them as they are.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        y: Tensor,
        how: Reading,
        kind: str,
        scaling: Scaling = UNSCALED,
        corruption: tuple[str, int] | None = None,
    ) -> None:
        self.paths, self.y, self.how, self.kind = list(paths), y, how, kind
        self.scaling, self.corruption = scaling, corruption

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        image = self.raw([place])
        if self.corruption is not None:
            image = corrupt(unit(image), *self.corruption, first=place)
        return self.scaling.apply(image)[0], self.y[place]

    def raw(self, places: Sequence[int]) -> Tensor:
        """Return pictures as bytes, or floats in [0, 1], `[count, channels, size, size]`."""
        some = [self.paths[place] for place in places]
        images, kind = read_pictures(some, self.how)
        if kind != self.kind:
            raise InputError(
                f"pictures of one set must be stored alike, got {self.kind} in {self.paths[0]} and {kind} in "
                f"{some[0]}. Convert them to one type."
            )
        return images

    def changed(self, scaling: Scaling, corruption: tuple[str, int] | None = None) -> "PictureFiles":
        """Return the same pictures with another scaling and corruption."""
        return PictureFiles(self.paths, self.y, self.how, self.kind, scaling, corruption)

    def take(self, index: Tensor) -> "PictureFiles":
        """Return some of the pictures, by their numbers."""
        paths = [self.paths[place] for place in index.tolist()]
        return PictureFiles(paths, self.y[index], self.how, self.kind, self.scaling, self.corruption)


def channel_scaling(pictures: PictureFiles) -> Scaling:
    """Return the scaling of each channel to mean 0 and variance 1, in one pass over the files."""
    count, total, squares = 0, torch.zeros(1), torch.zeros(1)
    for start in range(0, len(pictures), AT_ONCE):
        places = range(start, min(start + AT_ONCE, len(pictures)))
        values = unit(pictures.raw(places)).double()
        count += values.numel() // values.shape[1]
        total = total + values.sum((0, 2, 3))
        squares = squares + values.square().sum((0, 2, 3))
    mean = total / count
    variance = (squares / count - mean.square()).clamp(min=0)
    # A channel that is constant is only moved to 0; rounding leaves it a little above.
    std = variance.sqrt().masked_fill(variance < 1e-12, 1)
    return Scaling(mean.reshape(-1, 1, 1), std.reshape(-1, 1, 1))


@dataclass(frozen=True, eq=False)
class CorruptedFiles(Mapping[tuple[str, int], Split]):
    """`corrupted[kind, severity]`: a split of test pictures, corrupted and scaled as they are read.

    Args:
        pictures: The test pictures with their scaling.
    """

    pictures: PictureFiles

    @property
    def identity(self) -> list[Any]:
        """Return what tells these pictures from others, for a digest: making all of them takes long."""
        return [[path.name for path in self.pictures.paths], self.pictures.how.size]

    def __getitem__(self, key: tuple[str, int]) -> Split:
        if key not in list(self):
            raise KeyError(key)
        return Split(self.pictures.changed(self.pictures.scaling, key))

    def __iter__(self) -> Iterator[tuple[str, int]]:
        if self.pictures.how.size < LEAST_SIDE:
            return iter(())
        return ((kind, severity) for kind in KINDS + EXTRA_KINDS for severity in SEVERITIES)

    def __len__(self) -> int:
        return len(list(iter(self)))
