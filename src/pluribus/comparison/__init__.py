"""Compare methods: many runs, each measured and stored as one record."""

from pluribus.comparison.comparison import compare
from pluribus.comparison.diagnosis import Finding, doctor
from pluribus.comparison.evaluation import evaluate
from pluribus.comparison.outcomes import Outcomes
from pluribus.comparison.record import Record

__all__ = ["Finding", "Outcomes", "Record", "compare", "doctor", "evaluate"]
