"""Masked norms: the norms whose inputs depend on a mask, so that members need statistics of their own.

Norms before the first mask see the same values for all members. One statistic describes them, and frozen
members compute them once.
"""

from collections.abc import Iterable, Sequence

from pluribus.errors import UnreadableError
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network


def find_masked_statistics(network: Network, masks: Iterable[str], statistics: Sequence[str]) -> list[str]:
    """Return the statistics of norms behind a mask by the data flow; all where that cannot be read.

    Args:
        network: With masks in it.
        masks: Names of the buffers that are masks.
        statistics: Names of the running statistics of norms.
    """
    # Masks were put into the module after its graph was read.
    network.become(network.module)
    try:
        program = read_program(network)
    except UnreadableError:
        return list(statistics)
    behind = program.depends_on(list(masks))
    found = set()
    for node in program.steps:
        if node in behind:
            found |= {program.held[one] for one in node.all_input_nodes if one in program.held}
    # A counter of batches is read in training alone; it stands beside a running mean that is found.
    norms = {name.rpartition(".")[0] for name in found & set(statistics)}
    return [name for name in statistics if name.rpartition(".")[0] in norms]
