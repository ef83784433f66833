"""Feeds: which layers' weights a norm sees at work, by the data flow.

Running statistics describe one distribution. Where a layer before a norm has several options, each of them
makes another distribution, and statistics averaged over all of them fit none.
"""

from collections.abc import Mapping

from torch.fx import Node

from pluribus.mechanisms.graph.program import Program, read_program
from pluribus.mechanisms.network.network import Network


def find_feeds(
    network: Network, sites: Mapping[str, str], statistics: Mapping[str, str]
) -> dict[str, tuple[str, ...]]:
    """Return, for each norm, the sites that feed it directly, in the order in which they run.

    A site feeds a norm directly where a path leads from it to the norm that passes no other site. Branches
    that are added or concatenated before the norm are several paths.

    Args:
        network: Whose data flow is read.
        sites: By name of a tensor, the site that it belongs to.
        statistics: By name of a running statistic, the norm that it belongs to.

    Raises:
        UnreadableError: the network cannot be exported.
    """
    program = read_program(network)
    last_run: dict[str, int] = {}
    near = {node: frozenset[str]() for node in (*program.held, *program.entries, *program.constants)}
    for node, name in program.held.items():
        if name in sites:
            near[node] = frozenset({sites[name]})
    feeds: dict[str, set[str]] = {norm: set() for norm in statistics.values()}
    for place, node in enumerate(program.steps):
        read = [near[one] for one in node.all_input_nodes]
        own = frozenset[str]().union(*(near[one] for one in _weights(program, node)))
        # A layer with options hides what lies before it: its output is another one for each option.
        near[node] = own or frozenset[str]().union(*read)
        last_run |= dict.fromkeys(own, place)
        for norm in _norms(program, node, statistics):
            feeds[norm] |= near[node]
    return {norm: tuple(sorted(found, key=last_run.__getitem__)) for norm, found in feeds.items()}


def _weights(program: Program, node: Node) -> list[Node]:
    """Return what a step reads of weights, where it reads numbers of the inputs besides."""
    if node not in program.from_inputs:
        return []
    return [one for one in node.all_input_nodes if one not in program.from_inputs]


def _norms(program: Program, node: Node, statistics: Mapping[str, str]) -> set[str]:
    """Return the norms whose statistics a step reads."""
    names = [program.held[one] for one in node.all_input_nodes if one in program.held]
    return {statistics[name] for name in names if name in statistics}
