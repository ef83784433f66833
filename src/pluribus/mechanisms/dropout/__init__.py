"""Dropout whose masks are kept."""
