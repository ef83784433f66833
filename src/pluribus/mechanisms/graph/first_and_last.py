"""The layers at the two ends of a network, and those in between that run."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch

from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.layers import Site, is_norm
from pluribus.mechanisms.network.network import Network


def find_ends(network: Network, sites: Sequence[Site]) -> tuple[Site | None, Site | None]:
    """Return the first and the last layer with weights that the prediction depends on; norms are left out.

    The order is that of the data flow, or that of the calls where the flow cannot be read. Weights have two
    axes at least; where no layer has any, it is one with parameters. None where there is no such layer.
    """
    layers = [site for site in sites if site.parameters and not is_norm(site)]
    ran = order_of_run(network, layers) or layers
    held = network.tensors()
    weighty = [site for site in ran if any(held[name].ndim > 1 for name in site.parameters)] or ran
    return (weighty[0], weighty[-1]) if weighty else (None, None)


def order_of_run(network: Network, layers: Sequence[Site]) -> list[Site] | None:
    """Return the layers that the prediction depends on, in the order in which their parameters are read.

    The order is that of eval mode. A layer that runs twice is there twice. Where the data flow cannot be
    read, it is the layers that are called. None where the network cannot be run, as there is no example.
    """
    with suppress(UnreadableError, ConversionError):
        return list(_as_read(network, layers))
    return _as_called(network, layers)


def _as_read(network: Network, layers: Sequence[Site]) -> Iterator[Site]:
    """Yield the layers whose parameters the steps of the data flow read."""
    program = read_program(network)
    for step in program.steps:
        read = {program.held[one] for one in step.all_input_nodes if one in program.parameters}
        # Two layers with a tied weight are told apart by the bias that is read together with it.
        held = {site: len(read.intersection(site.parameters)) for site in layers}
        most = max(held.values(), default=0)
        yield from (site for site in layers if most and held[site] == most)


def _as_called(network: Network, layers: Sequence[Site]) -> list[Site] | None:
    """Return the layers in the order of their calls; None where the network cannot be run."""
    module, called, handles = network.module, list[Site](), []
    for site in layers:
        handle = site.module.register_forward_pre_hook(lambda *_, site=site: called.append(site))
        handles.append(handle)
    try:
        example = network.example.copy()
        with dry_run(module, training=False), torch.no_grad():
            module(*example.args, **example.keywords)
    # The user's code may raise anything; a real run raises it again, with a better message.
    except Exception:
        return None
    finally:
        for handle in handles:
            handle.remove()
    return called
