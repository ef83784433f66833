"""Costs of decisions: the answer that costs least, or no answer, and what that costs on test data.

Chow, "On optimum recognition error and reject tradeoff", IEEE Transactions on Information Theory 16, 1970;
Elkan, "The foundations of cost-sensitive learning", IJCAI 2001. An answer a to a sample of class c costs
K(c, a). With probabilities p, the answer of the least expected cost is given, unless deferring costs less:

    a(x) = argmin_a Σ_c p(c | x) K(c, a),    defer where the minimum exceeds K_defer          (1)
    expected cost = 1/n Σ_i K(y_i, a(x_i)),    K_defer where deferred                         (2)

    symbol    here
    K         Costs.matrix: of two outcomes `miss` for no where yes is right, and `alarm` for yes where no
              is right; of more, `wrong` for any wrong one
    K_defer   `defer`: somebody else answers, and is right

(2) counts the true classes of test data. Compare it with the cost of one answer for all samples:
probabilities that are good for nothing do not get below that.
"""

import math
import re
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from pluribus.errors import SettingError
from pluribus.ranges import nearest, show
from pluribus.settings import Settings, setting

Array = np.ndarray[Any, Any]

DEFERRED = -1
"""The answer of samples that are deferred."""
PAIR = re.compile(r"\s*(\w+)\s*=\s*([\d.]+(?:[eE][+-]?\d+)?)\s*")


@dataclass(frozen=True)
class Costs(Settings):
    """Costs of wrong answers and of deferring, in any unit; right answers cost nothing.

    Args:
        wrong: A wrong answer.
        miss: No where yes is right, of two outcomes; by default as `wrong`.
        alarm: Yes where no is right, of two outcomes; by default as `wrong`.
        defer: No answer: somebody else looks at the sample. By default nothing is deferred.

    Example:
        >>> Costs(miss=10, alarm=1, defer=0.5).matrix(2)
        array([[ 0.,  1.],
               [10.,  0.]])
    """

    wrong: float = setting(1.0, at_least=0)
    miss: float | None = setting(None, kind=float, at_least=0)
    alarm: float | None = setting(None, kind=float, at_least=0)
    defer: float | None = setting(None, kind=float, at_least=0)

    @property
    def of_deferring(self) -> float:
        """Return the cost of no answer; infinite where nothing is deferred."""
        return math.inf if self.defer is None else self.defer

    def matrix(self, outcomes: int) -> Array:
        """Return the cost of each answer for each true outcome, `[outcomes, answers]`.

        Raises:
            SettingError: `miss` or `alarm` is given, and there are more than two outcomes.
        """
        if outcomes == 2:
            miss = self.wrong if self.miss is None else self.miss
            alarm = self.wrong if self.alarm is None else self.alarm
            return np.array([[0.0, alarm], [miss, 0.0]])
        if self.miss is not None or self.alarm is not None:
            raise SettingError(
                f"the costs miss and alarm need 2 classes, got {outcomes}. Give wrong=1,defer=0.2 instead."
            )
        return self.wrong * (1 - np.eye(outcomes))

    def __str__(self) -> str:
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        default = {one.name: one.default for one in fields(self)}
        return ", ".join(f"{name} {value:g}" for name, value in given.items() if value != default[name])


def parse_costs(text: str) -> Costs | None:
    """Read costs such as `miss=10,alarm=1,defer=0.5`; None where the text is empty.

    Raises:
        SettingError: the text is no list of costs.
    """
    costs = Costs()
    if not text.strip():
        return None
    for part in text.split(","):
        found = PAIR.fullmatch(part)
        names = [one.name for one in fields(costs)]
        if not found:
            raise SettingError(
                f"costs must be written as miss=10,alarm=1,defer=0.5, got {show(part.strip())}. "
                f"They are {', '.join(names)}."
            )
        name, number = found.groups()
        if name not in names:
            raise SettingError(f"costs are {', '.join(names)}, got {show(name)}." + nearest(name, names))
        try:
            costs = replace(costs, **{name: float(number)})
        except ValueError as error:
            raise SettingError(f"a cost must be a number, got {show(part.strip())}.") from error
    return costs


def decide(probabilities: Array, costs: Costs) -> Array:
    """Return the answers of Eq. (1), `[samples]`; `DEFERRED` where deferring costs less than any.

    Args:
        probabilities: `[samples, outcomes]`.
        costs: What answers cost.

    >>> decide(np.array([[0.99, 0.01], [0.9, 0.1], [0.2, 0.8]]), Costs(miss=10, alarm=1, defer=0.5))
    array([ 0, -1,  1])
    """
    expected = probabilities @ costs.matrix(probabilities.shape[1])
    return np.where(expected.min(1) > costs.of_deferring, DEFERRED, expected.argmin(1))


def decide_by_confidence(labels: Array, confidence: Array, costs: Costs) -> Array:
    """Return the answers of Eq. (1) where all wrong answers cost the same: the labels, or `DEFERRED`.

    Args:
        labels: The most probable classes, `[samples]`.
        confidence: Their probabilities, `[samples]`.
        costs: What answers cost.
    """
    return np.where(costs.wrong * (1 - confidence) > costs.of_deferring, DEFERRED, labels)


def cost_per_sample(answers: Array, target: Array, costs: Costs, outcomes: int) -> Array:
    """Return the summands of Eq. (2), `[samples]`."""
    deferred = answers == DEFERRED
    # Any answer will do where none is given: its cost is not taken.
    given = np.where(deferred, 0, answers)
    return np.where(deferred, costs.of_deferring, costs.matrix(outcomes)[target, given])


def expected_costs(answers: Array, target: Array, costs: Costs, outcomes: int) -> dict[str, float]:
    """Return Eq. (2) and what to compare it with, by name.

    `expected_cost` is that of the answers; `cost_of_one_answer` the least that one answer for all samples, or
    deferring all, would cost; `deferred` the share deferred. Of two outcomes there are also `missed` and
    `false_alarms`, of more `wrong`: shares of all samples.
    """
    per_sample = cost_per_sample(answers, target, costs, outcomes)
    shares = np.bincount(target, minlength=outcomes) / len(target)
    constant = min(float((shares @ costs.matrix(outcomes)).min()), costs.of_deferring)
    found = {
        "expected_cost": float(per_sample.mean()),
        "cost_of_one_answer": constant,
        "deferred": float((answers == DEFERRED).mean()),
    }
    mistaken = (answers != target) & (answers != DEFERRED)
    if outcomes > 2:
        return found | {"wrong": float(mistaken.mean())}
    return found | {
        "missed": float((mistaken & (target == 1)).mean()),
        "false_alarms": float((mistaken & (target == 0)).mean()),
    }
