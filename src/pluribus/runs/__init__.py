"""Folders of runs: the one to take, its ensemble, and predictions with it."""

from pluribus.runs.loaded_run import LoadedRun, load_run

__all__ = ["LoadedRun", "load_run"]
