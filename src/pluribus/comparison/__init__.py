"""Compare methods: many runs, each measured and stored as one record."""

from pluribus.comparison.comparison import compare
from pluribus.comparison.diagnosis import Finding, doctor
from pluribus.comparison.evaluation import evaluate
from pluribus.comparison.finetuning import Finetuned, finetune
from pluribus.comparison.members_apart import train_members
from pluribus.comparison.outcomes import Outcomes
from pluribus.comparison.record import Record

__all__ = [
    "Finding",
    "Finetuned",
    "Outcomes",
    "Record",
    "compare",
    "doctor",
    "evaluate",
    "finetune",
    "train_members",
]
