"""The Pareto front: configurations that no other beats in quality and in cost."""

from collections.abc import Mapping

from pluribus.report.columns import Cell, Column


def undominated(label: str, cells: Mapping[str, tuple[Cell, Cell]], quality: Column) -> bool:
    """Return whether no other is at least as good in both and better in one."""
    own_quality, own_cost = cells[label]
    for name, (other_quality, other_cost) in cells.items():
        if name == label:
            continue
        worse = quality.better(own_quality.mean, other_quality.mean) or own_cost.mean < other_cost.mean
        better = quality.better(other_quality.mean, own_quality.mean) or other_cost.mean < own_cost.mean
        if better and not worse:
            return False
    return True
