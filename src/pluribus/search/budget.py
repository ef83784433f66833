"""Budget of a search: costs are exact before training, and what is too expensive is never trained.

The exits of a Single Architecture Ensemble are learnt. Before training, the most expensive choice of exits
counts: what is within the budget stays there, whatever is learnt.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence

import torch

from pluribus.comparison.evaluation import measure_costs
from pluribus.data.task import Task
from pluribus.ensemble import Ensemble
from pluribus.mechanisms.exits.pairs import Pairs
from pluribus.report.budget import COSTS, Limit
from pluribus.report.recommendation import ROUNDING


def costs_ahead(
    ensemble: Ensemble, task: Task, single: Ensemble, limits: Sequence[Limit] = ()
) -> dict[str, float]:
    """Return the costs of an ensemble before it is trained, with their ratios to the single network.

    Methods that predict only after training, such as SWAG, have parameters alone, and so have ensembles
    whose parameters are beyond one of the limits.
    """
    sizes = _sizes(ensemble, single)
    if not ensemble.method.is_ready(ensemble.members):
        return sizes
    # Other costs are those of the frozen ensemble. Freezing takes seconds: an ensemble that is too large is
    # excluded without it.
    if excess(sizes, limits)[1]:
        return sizes
    ensemble.eval()
    with _most_expensive_exits(ensemble):
        return measure_costs(ensemble, ensemble.freeze(), task, single, timed=False)


def _sizes(ensemble: Ensemble, single: Ensemble) -> dict[str, float]:
    own, base = (sum(one.numel() for one in part.parameters()) for part in (ensemble, single))
    return {"parameters": float(own), "parameters_ratio": own / base if base else math.nan}


@contextlib.contextmanager
def _most_expensive_exits(ensemble: Ensemble) -> Iterator[None]:
    """Let each input prefer other exits than those before it, from the deepest, for the block."""
    index = ensemble.members.index
    if not isinstance(index, Pairs) or index.chosen is not None:
        yield
        return
    before = index.logits.detach().clone()
    with torch.no_grad():
        index.logits.zero_()
        for slot in range(index.inputs):
            index.logits[slot, _preferred(slot, index.exits, index.depths)] = 1.0
        # The deepest exit runs the whole network.
        index.logits[0, index.depths - 1] = 1.0
    try:
        yield
    finally:
        with torch.no_grad():
            index.logits.copy_(before)


def _preferred(slot: int, exits: int, depths: int) -> list[int]:
    """Return the exits of an input: the deepest for the first, those before them for the next, and so on."""
    return [(depths - 1 - (slot * exits + number)) % depths for number in range(exits)]


def excess(costs: Mapping[str, float], limits: Sequence[Limit], trained: bool = False) -> tuple[float, str]:
    """Return by how much costs exceed a budget, as a share of the limit, and why; 0 and nothing within it.

    Args:
        costs: By name, with ratios.
        limits: The budget.
        trained: Whether unknown costs exceed a limit; before training they do not.
    """
    worst, reasons = 0.0, []
    for limit in limits:
        cost = costs.get(f"{limit.name}_ratio" if limit.relative else limit.name, math.nan)
        if trained and math.isnan(cost):
            worst = math.inf
            reasons.append(f"{COSTS[limit.name]} not measured")
        if cost > limit.most * (1 + ROUNDING):
            worst = max(worst, cost / limit.most - 1 if limit.most else cost)
            reasons.append(f"{COSTS[limit.name]} {cost:.3g}{' ×' if limit.relative else ''}")
    return worst, ", ".join(reasons)
