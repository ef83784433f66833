"""Finding the layers of a network, selecting among them, and putting layers before them."""

from pluribus.surgery.insert import insert
from pluribus.surgery.norms import is_norm
from pluribus.surgery.select import Selector, select
from pluribus.surgery.sites import Site, find_sites, has_computed_weights, is_bias

__all__ = [
    "Selector",
    "Site",
    "find_sites",
    "has_computed_weights",
    "insert",
    "is_bias",
    "is_norm",
    "select",
]
