"""Widths: which channels belong together, and networks made narrower or wider."""
