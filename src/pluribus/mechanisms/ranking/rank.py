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
from pluribus.mechanisms.network.inputs import Inputs, inputs_of_batch
from pluribus.mechanisms.ranking.criteria import Criterion, criterion, is_higher_better
from pluribus.prediction import Prediction
from pluribus.settings import whole


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
        """How many of the first rows have the best score together; of equal scores the fewest."""
        extreme = max if is_higher_better(self.metric) else min
        return 1 + self.scores.index(extreme(self.scores))

    def among(self, rows: Sequence[int]) -> "Ranking | None":
        """The ranking of these rows alone, renumbered; None unless they are the first ones of this one."""
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
    """The best rows of a ranking, `best` of them; None is all rows."""
    if best is None:
        return None
    whole("best", best)
    if ranking is None:
        raise InputError("best= needs ranked members, however: none are. Call rank((x, y)) first.")
    if best > len(ranking):
        raise InputError(f"best must be at most {len(ranking)}, the number of members, however: {best}.")
    return list(ranking[:best])


class Work:
    """What the rows chosen so far have computed, and what others would add to it.

    A stretch of the pass is computed once for each combination of the choices made up to its end.

    Args:
        stretches: By stretch in their order, the names of the tensors held so far, and multiply-adds.
        choices: By row, the option it takes of every tensor that is not shared.
    """

    def __init__(
        self, stretches: Sequence[tuple[frozenset[str], int]], choices: Sequence[Mapping[str, Hashable]]
    ) -> None:
        self._counts = [count for _, count in stretches]
        self._values = [
            [frozenset((name, chosen[name]) for name in names & chosen.keys()) for names, _ in stretches]
            for chosen in choices
        ]
        self._done = [set[frozenset[tuple[str, Hashable]]]() for _ in stretches]

    def added(self) -> Tensor:
        """The multiply-adds that each row would add, `[members]`."""
        steps = [list(zip(values, self._done, self._counts, strict=True)) for values in self._values]
        return torch.tensor(
            [sum(count for value, done, count in step if value not in done) for step in steps]
        ).double()

    def add(self, row: int) -> None:
        """Computes a row."""
        for value, done in zip(self._values[row], self._done, strict=True):
            done.add(value)


def rank_members(prediction: Prediction, target: Tensor, metric: str, work: Work | None = None) -> Ranking:
    """Eqs. (3) and (4) for all members of a prediction.

    Args:
        prediction: Of all members.
        target: As for the metric.
        metric: What `criteria.criterion` knows.
        work: If given, the gain of a candidate counts for each multiply-add that it adds.
    """
    order, scores = _greedy(
        criterion(prediction, target, metric), 1 if is_higher_better(metric) else -1, work
    )
    return Ranking(tuple(order), tuple(scores), metric)


def _greedy(by: Criterion, sign: int, work: Work | None) -> tuple[list[int], list[float]]:
    total, left = by.empty(), list(range(len(by.values)))
    order, scores = list[int](), list[float]()
    while left:
        found = by.with_each(total, float(by.weights[order].sum()))[left]
        merit = sign * found
        if work is not None and order:  # alone, every member costs the same
            merit = per_work(merit - sign * scores[-1], work.added()[left])
        place = int(merit.nan_to_num(nan=-torch.inf).argmax())  # the first of equal ones
        row = left.pop(place)
        order.append(row)
        scores.append(found[place].item())
        total = by.add(total, by.values[row])
        if work is not None:
            work.add(row)
    return order, scores


def per_work(gain: Tensor, added: Tensor) -> Tensor:
    """Gains for each multiply-add; a loss weighs more, the more multiply-adds it costs."""
    added = added.clamp(min=1)
    return torch.where(gain > 0, gain / added, gain * added)


def read_work(members: AnyMembers, inputs: Inputs) -> Work:
    """Return the work of all rows of eval mode, by one pass of the first."""
    code, tensors = members.code, members.tensors
    if code.one_pass:
        raise InputError("per_multiply_add is for rows that run apart, however: one run gives all of these.")
    rows = members.index.rows(training=False)
    with torch.no_grad():
        member = materialise(code.caller.module, tensors.of_one(rows[0])).eval()
    choices = [tensors.keys(row) for row in rows]
    stretches = work_by_layer(member, inputs)
    if code.is_random:  # random layers are anywhere, and never shared
        stretches = [(names | {""}, count) for names, count in stretches]
        choices = [{**chosen, "": row} for chosen, row in zip(choices, rows, strict=True)]
    return Work(stretches, choices)


def with_targets(data: Any, forward: Callable[..., Any]) -> Iterator[tuple[Inputs, Tensor]]:
    """The inputs and targets of `(x, y)`, or of every batch of a loader.

    A batch is such a pair, inputs one by one with the targets last, or keyword inputs with `labels`.
    """
    single = isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], Tensor)
    if not single and (isinstance(data, Tensor | tuple | Mapping) or not isinstance(data, Iterable)):
        raise InputError(f"data must be (x, y) or a loader of such batches, however: {type(data).__name__}.")
    empty = True
    for batch in [data] if single else data:
        empty = False
        if isinstance(batch, Mapping):
            inputs, y = inputs_of_batch(batch, forward), batch.get("labels")
        elif isinstance(batch, Tensor):
            raise InputError("a batch must be inputs and targets, however: a tensor. Pass the tuple (x, y).")
        else:
            *given, y = batch
            inputs = Inputs.of(given[0] if len(given) == 1 else tuple(given))
        if not isinstance(y, Tensor) or len(y) != inputs.batch:
            came = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise InputError(f"targets must be a tensor for {inputs.batch} samples, however: {came}.")
        yield inputs, y
    if empty:
        raise InputError("a loader must give at least one batch, however: it gave none.")
