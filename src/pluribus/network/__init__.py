"""The user's module as Pluribus sees it: tensors, data-flow graph, example input, output, initialiser."""

from pluribus.network.network import Network

__all__ = ["Network"]
