"""Compare methods: many runs, each measured and stored as one record."""

from pluribus.comparison.comparison import compare
from pluribus.comparison.evaluation import evaluate
from pluribus.comparison.outcomes import Outcomes
from pluribus.comparison.record import Record

__all__ = ["Outcomes", "Record", "compare", "evaluate"]
