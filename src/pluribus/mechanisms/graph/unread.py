"""Unread: the steps of a graph that nothing reads."""

from torch.fx import Graph


def erase_unread(graph: Graph) -> None:
    """Erase the steps that neither another step nor the result reads; inputs stay."""
    for node in reversed(graph.nodes):
        if not node.users and node.op not in ("placeholder", "output"):
            graph.erase_node(node)
