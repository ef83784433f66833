"""Folders of runs: the one to take, its ensemble, and predictions with it."""
