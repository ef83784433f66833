"""Ranking: which members to run, best first, by what they say together on validation data.

Oleksienko & Iosifidis, "Layer Ensembles", IEEE MLSP 2023, §III-B: greedy forward selection, which gives
nested sets of every size in one pass.

    s¹ = argmin_j Q({s_j})                                                        (3)
    s^(P+1) = argmin_j Q(S^P ∪ {s_j}),    S^(P+1) = S^P ∪ {s^(P+1)}               (4)

The paper prints argmax, though its Q is a divergence; here greater or lesser is better as the metric says.
Of equal candidates the first wins.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import Tensor

from pluribus.errors import InputError
from pluribus.mechanisms.graph.cost import work_by_layer
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.network.batches import inputs_of_batch
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.ranking.criteria import Criterion, criterion, is_higher_better
from pluribus.prediction import Prediction
from pluribus.ranges import check


@dataclass(frozen=True)
class Ranking(Sequence[int]):
    """Rows of `ensemble(x)`, best first; `ranking[:P]` are the P to run together.

    Attributes:
        order: All rows, by their positions in eval mode.
        scores: The metric of the first P rows together, at place P − 1, on the data they were ranked by.
        metric: Its name.
    """

    order: tuple[int, ...]
    scores: tuple[float, ...]
    metric: str

    @property
    def best(self) -> int:
        """Return how many of the first rows have the best score together; of equal scores the fewest."""
        extreme = max if is_higher_better(self.metric) else min
        return 1 + self.scores.index(extreme(self.scores))

    def among(self, rows: Sequence[int]) -> "Ranking | None":
        """Return the ranking of these rows alone, renumbered; None unless they are the first of this one."""
        if set(rows) != set(self.order[: len(rows)]):
            return None
        places = {row: place for place, row in enumerate(rows)}
        order = tuple(places[row] for row in self.order[: len(rows)])
        return Ranking(order, self.scores[: len(rows)], self.metric)

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[int, ...]: ...
    def __getitem__(self, place: int | slice) -> int | tuple[int, ...]:
        return self.order[place]


def best_rows(ranking: Ranking | None, best: int | None) -> list[int] | None:
    """Return the best rows of a ranking, `best` of them; None is all rows.

    Raises:
        InputError: Members are not ranked yet, or there are fewer.
    """
    if best is None:
        return None
    check("best", best, int, at_least=1)
    if ranking is None:
        raise InputError("best= needs ranked members, got none. Call rank((x, y)) first.")
    if best > len(ranking):
        raise InputError(
            f"best must be at most {len(ranking)}, the number of members, got {best}. "
            "Leave best= out to use all of them."
        )
    return list(ranking[:best])


class Work:
    """The multiply-adds of the rows chosen so far, and those that others would add.

    A stretch of the pass is computed once for each combination of the choices made up to its end.

    Args:
        stretches: By stretch in their order, the names of the tensors held so far, and multiply-adds.
        choices: By row, the option it takes of every tensor that is not shared.
    """

    def __init__(
        self, stretches: Sequence[tuple[frozenset[str], int]], choices: Sequence[Mapping[str, Hashable]]
    ) -> None:
        self._counts = [count for _, count in stretches]
        # By row and stretch, everything that decides which numbers the stretch computes.
        self._values = []
        for chosen in choices:
            values = []
            for names, _ in stretches:
                values.append(frozenset((name, chosen[name]) for name in names & chosen.keys()))
            self._values.append(values)
        self._done = [set[frozenset[tuple[str, Hashable]]]() for _ in stretches]

    def added(self) -> Tensor:
        """Return the multiply-adds that each row would add, `[members]`."""
        totals = []
        for values in self._values:
            total = 0
            for value, done, count in zip(values, self._done, self._counts, strict=True):
                total += 0 if value in done else count
            totals.append(total)
        return torch.tensor(totals).double()

    def add(self, row: int) -> None:
        """Count a row as computed."""
        for value, done in zip(self._values[row], self._done, strict=True):
            done.add(value)


def rank_members(prediction: Prediction, target: Tensor, metric: str, work: Work | None = None) -> Ranking:
    """Rank all members of a prediction by Eqs. (3) and (4).

    Args:
        prediction: Of all members.
        target: As for the metric.
        metric: What `criteria.criterion` knows.
        work: If given, the gain of a candidate counts for each multiply-add that it adds.
    """
    sign = 1 if is_higher_better(metric) else -1
    order, scores = _greedy(criterion(prediction, target, metric), sign, work)
    return Ranking(tuple(order), tuple(scores), metric)


def _greedy(by: Criterion, sign: int, work: Work | None) -> tuple[list[int], list[float]]:
    """Return all rows, best first, and the metric of the first P of them, for every P.

    Args:
        by: The metric of any set of members.
        sign: 1 where greater values are better, else -1.
        work: Multiply-adds, where gains count for each of them.
    """
    total, left = by.empty(), list(range(len(by.values)))
    order, scores = list[int](), list[float]()
    while left:
        found = by.with_each(total, float(by.weights[order].sum()))[left]
        merit = sign * found
        # Alone, every member costs the same.
        if work is not None and order:
            merit = per_work(merit - sign * scores[-1], work.added()[left])
        # `argmax` returns the first of equal ones; a candidate without a score comes last.
        place = int(merit.nan_to_num(nan=-torch.inf).argmax())
        row = left.pop(place)
        order.append(row)
        scores.append(found[place].item())
        total = by.add(total, by.values[row])
        if work is not None:
            work.add(row)
    return order, scores


def per_work(gain: Tensor, added: Tensor) -> Tensor:
    """Return gains for each multiply-add; a loss counts the more, the more multiply-adds it costs."""
    added = added.clamp(min=1)
    return torch.where(gain > 0, gain / added, gain * added)


def read_work(members: AnyMembers, inputs: Inputs) -> Work:
    """Return the work of all rows of eval mode, by one pass of the first.

    Raises:
        InputError: One run gives all rows, so that none of them adds any work.
    """
    code, tensors = members.code, members.tensors
    if code.one_pass:
        raise InputError(
            "per_multiply_add expects members that run apart, got members that one run gives all. "
            "Rank them without it."
        )
    rows = members.index.rows(training=False)
    with torch.no_grad():
        member = materialise(code.caller.module, tensors.of_one(rows[0])).eval()
    choices = [tensors.keys(row) for row in rows]
    stretches = work_by_layer(member, inputs)
    # Random layers may be anywhere, and are never shared: every stretch depends on the row itself.
    if code.is_random:
        stretches = [(names | {""}, count) for names, count in stretches]
        choices = [{**chosen, "": row} for chosen, row in zip(choices, rows, strict=True)]
    return Work(stretches, choices)


def with_targets(data: Any, forward: Callable[..., Any]) -> Iterator[tuple[Inputs, Tensor]]:
    """Yield the inputs and targets of `(x, y)`, or of every batch of a loader.

    A batch is such a pair, inputs one by one with the targets last, or keyword inputs with `labels`.

    Args:
        data: What the user gave.
        forward: Of the network, which tells what it accepts.

    Raises:
        InputError: There are no batches, or no targets that fit the inputs.
    """
    empty = True
    for batch in _batches(data):
        empty = False
        inputs, targets = _split(batch, forward)
        if not isinstance(targets, Tensor) or len(targets) != inputs.batch:
            came = tuple(targets.shape) if isinstance(targets, Tensor) else type(targets).__name__
            raise InputError(
                f"targets must be a tensor for {inputs.batch} samples, got {came}. Pass one for each sample."
            )
        yield inputs, targets
    if empty:
        raise InputError("a loader must give at least one batch, got none. Pass one with data.")


def _batches(data: Any) -> Iterable[Any]:
    """Return a loader's batches, or the one pair that a user gave."""
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], Tensor):
        return [data]
    if isinstance(data, Tensor | tuple | Mapping) or not isinstance(data, Iterable):
        raise InputError(
            f"data must be (x, y) or a loader of such batches, got {type(data).__name__}. "
            "Pass inputs and targets as a tuple."
        )
    return data


def _split(batch: Any, forward: Callable[..., Any]) -> tuple[Inputs, Any]:
    """Return the inputs and the targets of one batch."""
    if isinstance(batch, Mapping):
        return inputs_of_batch(batch, forward), batch.get("labels")
    if isinstance(batch, Tensor):
        raise InputError("a batch must be inputs and targets, got a tensor. Pass the tuple (x, y).")
    *given, targets = batch
    return Inputs.of(given[0] if len(given) == 1 else tuple(given)), targets
