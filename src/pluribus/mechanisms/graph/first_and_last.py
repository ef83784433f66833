"""The layers at the two ends of a network, and those in between that run."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch

from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.norms import is_norm
from pluribus.mechanisms.network.sites import Site


def find_ends(network: Network, sites: Sequence[Site]) -> tuple[Site | None, Site | None]:
    """The first and the last layer with weights, no norm, that the prediction depends on, in the order of the
    data flow, or of the calls where that cannot be read.

    Weights have two axes at least; where no layer has any, it is one with parameters. None where there is
    no such layer.
    """
    layers = [site for site in sites if site.parameters and not is_norm(site)]
    ran = order_of_run(network, layers) or layers
    held = network.tensors()
    weighty = [site for site in ran if any(held[name].ndim > 1 for name in site.parameters)] or ran
    return (weighty[0], weighty[-1]) if weighty else (None, None)


def order_of_run(network: Network, layers: Sequence[Site]) -> list[Site] | None:
    """Layers with parameters that the prediction depends on, in the order in which these are read in eval
    mode, once for each time; where the data flow cannot be read, those that are called. None where the
    network cannot be run, as there is no example.
    """
    with suppress(UnreadableError, ConversionError):
        return list(_as_read(network, layers))
    return _as_called(network, layers)


def _as_read(network: Network, layers: Sequence[Site]) -> Iterator[Site]:
    program = read_program(network)
    for step in program.steps:
        read = {program.held[one] for one in step.all_input_nodes if one in program.parameters}
        # Of layers with a tied weight, the one that reads it together with its own bias.
        held = {site: len(read.intersection(site.parameters)) for site in layers}
        most = max(held.values(), default=0)
        yield from (site for site in layers if most and held[site] == most)


def _as_called(network: Network, layers: Sequence[Site]) -> list[Site] | None:
    module, called = network.module, list[Site]()
    handles = [
        site.module.register_forward_pre_hook(lambda *_, site=site: called.append(site)) for site in layers
    ]
    try:
        example = network.example.copy()
        with dry_run(module, training=False), torch.no_grad():
            module(*example.args, **example.keywords)
    except Exception:  # whatever the user's code raises: a run will say it better
        return None
    finally:
        for handle in handles:
            handle.remove()
    return called
