"""Masks on channels: where they go, what they leave, and members without the rest."""
