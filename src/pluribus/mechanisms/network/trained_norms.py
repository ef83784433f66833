"""Tell a trained network from a new one by its norms."""

from collections.abc import Iterable

from pluribus.mechanisms.network.layers import Site, is_norm
from pluribus.mechanisms.network.network import Network


def has_trained_norm(network: Network, sites: Iterable[Site]) -> bool:
    """Return whether a norm among these layers was trained.

    Scales of new norms are all ones and shifts all zeros, whatever the library. Training makes them differ.

    Args:
        network: Whose layers these are.
        sites: The layers.
    """
    held = network.tensors()
    for site in sites:
        if not is_norm(site):
            continue
        for name in site.parameters:
            numbers = held[name].detach().flatten()
            if bool((numbers != numbers[:1]).any()):
                return True
    return False
