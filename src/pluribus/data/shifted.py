"""Test images under common corruptions, made one set at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor

from pluribus.data.corruptions import EXTRA_KINDS, KINDS, corrupt
from pluribus.data.scaling import Scaling, unit
from pluribus.data.split import Split

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True, eq=False)
class Shifted(Mapping[tuple[str, int], Split]):
    """`shifted[kind, severity]`: the test images corrupted, then scaled as those of training.

    Keys are all pairs of a kind and a severity, severities fastest. A set is computed whenever it is asked
    for, always the same, and not kept.

    Args:
        images: Raw test images `[count, channels, height, width]`: bytes, or floats in [0, 1].
        y: Their targets.
        scaling: What the network's inputs went through.
        kinds: Kinds of corruption, of `KINDS` and `EXTRA_KINDS`.
        seed: Seed of the corruptions.
    """

    images: Tensor
    y: Tensor
    scaling: Scaling
    kinds: tuple[str, ...] = KINDS + EXTRA_KINDS
    seed: int = 0

    def __getitem__(self, key: tuple[str, int]) -> Split:
        if key not in self:
            raise KeyError(key)
        return Split(self.scaling.apply(corrupt(unit(self.images), *key, seed=self.seed)), self.y)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((kind, severity) for kind in self.kinds for severity in SEVERITIES)

    def __len__(self) -> int:
        return len(self.kinds) * len(SEVERITIES)

    def __contains__(self, key: object) -> bool:
        return any(key == own for own in self)
