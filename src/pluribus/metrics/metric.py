"""A metric: a pure function, and the row that tells people and programs how to read its values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pluribus.errors import InputError
from pluribus.prediction import DiscretePrediction, Prediction

Direction = Literal["higher", "lower"]
Against = Literal["target", "out", "vanilla"]


@dataclass(frozen=True)
class Metric:
    """A measure of predictions, with all that a report or a search must know of it.

    Values are Python floats, NaN where the data leave the number undefined.

    Args:
        name: Its name in records, in tables and on the command line.
        function: Takes the prediction and what it is held `against`.
        direction: Which values are better.
        range: The least and the greatest value, both possible.
        title: A few words for the head of a column.
        explanation: One plain sentence.
        paper: Where it is defined; empty where everybody knows.
        kinds: Classes of predictions that have it; none for a metric of other numbers.
        against: The `target`; the prediction on data `out` of distribution; or the errors of a `vanilla`
            network.
        members: Least number of members.
        outcomes: Least number of outcomes of a discrete prediction.
        dense: Whether it is of images, and needs a class for every pixel.

    """

    name: str
    function: Callable[..., float]
    direction: Direction
    range: tuple[float, float]
    title: str
    explanation: str
    paper: str = ""
    kinds: tuple[type[Prediction], ...] = ()
    against: Against = "target"
    members: int = 1
    outcomes: int = 1
    dense: bool = False

    def __call__(self, prediction: Any, other: Any) -> float:
        """Compute the metric.

        Raises:
            InputError: the metric is not defined for such predictions.
        """
        if self.kinds and not self.suits(prediction):
            came = [type(prediction).__name__, *(f"{name}={n}" for name, n in sizes(prediction).items())]
            raise InputError(
                f"{self.name} needs {self._needs()}, got {', '.join(came)}. "
                "Use metrics_for(prediction) for those that suit."
            )
        if self.against == "out" and type(other) is not type(prediction):
            raise InputError(
                f"{self.name} compares two predictions of one kind, "
                f"got {type(prediction).__name__} and {type(other).__name__}. Use one ensemble for both."
            )
        return self.function(prediction, other)

    def suits(self, prediction: object) -> bool:
        """Return whether the metric is defined for such a prediction."""
        if not isinstance(prediction, self.kinds):
            return False
        if self.dense and not is_dense(prediction):
            return False
        came = sizes(prediction)
        # Numbers have no outcomes to count.
        return all(came.get(name, least) >= least for name, least in self._least())

    def _needs(self) -> str:
        """Return the predictions that the metric is defined for, in words."""
        kinds = " or ".join(kind.__name__ for kind in self.kinds)
        pixels = ["a class for every pixel"] * self.dense
        return ", ".join([kinds, *pixels, *(f"at least {n} {name}" for name, n in self._least() if n > 1)])

    def _least(self) -> list[tuple[str, int]]:
        return [("members", self.members), ("outcomes", self.outcomes)]


def is_dense(prediction: object) -> bool:
    """Return whether a prediction has a class for every pixel, `[members, batch, outcomes, y, x]`."""
    return isinstance(prediction, DiscretePrediction) and prediction.member_log_probabilities.ndim >= 5


def sizes(prediction: object) -> dict[str, int]:
    """Return how many members a prediction has, and how many outcomes if it is discrete."""
    found = {}
    if isinstance(prediction, Prediction):
        found["members"] = len(prediction.weights)
    if isinstance(prediction, DiscretePrediction):
        found["outcomes"] = prediction.member_log_probabilities.shape[2]
    return found
