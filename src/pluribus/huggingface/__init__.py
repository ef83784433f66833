"""Ensembles with Hugging Face: its `Trainer`, its folders, and its Hub."""

from pluribus.huggingface.model_card import model_card
from pluribus.huggingface.objective import Objective
from pluribus.huggingface.pretrained import from_pretrained, push_to_hub, save_pretrained
from pluribus.huggingface.trainer import EnsembleTrainer

__all__ = ["EnsembleTrainer", "Objective", "from_pretrained", "model_card", "push_to_hub", "save_pretrained"]
