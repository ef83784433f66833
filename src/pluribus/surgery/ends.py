"""The layers at the two ends of a network."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from pluribus.errors import ConversionError, UnreadableError
from pluribus.network import Network
from pluribus.network.program import read_program
from pluribus.surgery.norms import is_norm
from pluribus.surgery.sites import Site


def find_ends(network: Network, sites: Sequence[Site]) -> tuple[Site | None, Site | None]:
    """The first and the last layer with parameters, no norm, that the prediction depends on, in the order of
    the data flow.

    Where the data flow cannot be read it is the order of their names; None where there is no such layer.
    """
    layers = [site for site in sites if site.parameters and not is_norm(site)]
    with suppress(UnreadableError, ConversionError):
        layers = list(_in_order(network, layers)) or layers
    return (layers[0], layers[-1]) if layers else (None, None)


def _in_order(network: Network, layers: Sequence[Site]) -> Iterator[Site]:
    """The layers in the order in which their parameters are read, once for each time."""
    program = read_program(network)
    for step in program.steps:
        read = {program.held[one] for one in step.all_input_nodes if one in program.parameters}
        # Of layers with a tied weight, the one that reads it together with its own bias.
        held = {site: len(read.intersection(site.parameters)) for site in layers}
        if any(held.values()):
            yield max(held, key=lambda site: held[site])
