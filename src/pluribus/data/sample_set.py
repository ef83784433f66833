"""SampleSet: where the samples of a split come from, and in which order they can be read."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from torch import Generator, Tensor

from pluribus.data.batch import Batch


class SampleSet(ABC):
    """Samples that are read in batches.

    Attributes:
        batch_size: Samples of a batch, where a loader of the user fixes it; else None.
        own_order: Name of what decides the order of samples, where that is not a seed; else empty.
    """

    batch_size: int | None = None
    own_order: str = ""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many samples there are."""

    @abstractmethod
    def read(
        self, size: int, generators: Sequence[Generator] = (), epoch: int = 0, share: slice = slice(None)
    ) -> Iterator[Batch]:
        """Yield all samples.

        Args:
            size: The most samples of a batch.
            generators: One for each order of the samples, as in `index_batches`.
            epoch: For sets with an order of their own: the number of passes before this one.
            share: The part of every batch that this process takes.
        """

    @abstractmethod
    def first(self, count: int) -> Batch:
        """Return the first samples, without a trace in any order of samples."""

    @abstractmethod
    def take(self, index: Tensor) -> "SampleSet":
        """Return some of the samples, by their numbers, `[count]`; raise where they have none."""
