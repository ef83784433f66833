"""Figures of the page of a search."""
