"""Ranking the members on validation data."""
