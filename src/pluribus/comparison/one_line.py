"""One line about a run, for `print`: how good it is, and what it costs."""

from collections.abc import Mapping

SHORTLY = ("accuracy", "dice", "nll", "ece", "rmse", "gaussian_nll", "coverage_95")
"""Metrics in the line."""
RATIOS = {"multiply_adds_ratio": "multiply-adds", "latency_ratio": "time"}
"""Costs in the line, with their names in words."""


def one_line(names: str, error: str, metrics: Mapping[str, float], cost: Mapping[str, float]) -> str:
    """Return the names of a run with its most important numbers, or with the first line of its error.

    >>> one_line("single on digits, cnn, seed 0", "", {"nll": 0.12345}, {"latency_ratio": 1.0})
    'single on digits, cnn, seed 0: nll 0.1235, 1 × time'
    """
    if error:
        return f"{names}: failed: {error.splitlines()[0]}"
    numbers = [f"{name} {metrics[name]:.4g}" for name in SHORTLY if name in metrics]
    numbers += [f"{cost[name]:.3g} × {words}" for name, words in RATIOS.items() if name in cost]
    return f"{names}: {', '.join(numbers) or 'nothing measured'}"
