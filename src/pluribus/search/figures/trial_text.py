"""Texts about a trial for figures."""

import html
from typing import Any

from pluribus.search.study import Trial


def describe(trial: Trial) -> str:
    """Return the configuration and the values of a trial, a line each, for the pointer."""
    lines = [f"trial {trial.number}: {trial.label}"]
    lines += [f"{name}: {value:.4g}" for name, value in trial.values.items()]
    return "<br>".join(html.escape(line, quote=False) for line in lines)


def kind_of(trial: Trial) -> str:
    """Return the name of the method of a trial."""
    return trial.label.partition("(")[0].partition(",")[0]


def told(value: Any) -> str:
    """Return a value with three digits, or as a word."""
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)
