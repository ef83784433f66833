"""Search for the best ensemble for a budget, on one machine or many."""

from pluribus.axes import Between, Ends, OneOf
from pluribus.search.engine import search
from pluribus.search.halving import Halving
from pluribus.search.making import make_space, read_space
from pluribus.search.space import Space
from pluribus.search.study import Study, Trial

__all__ = [
    "Between",
    "Ends",
    "Halving",
    "OneOf",
    "Space",
    "Study",
    "Trial",
    "make_space",
    "read_space",
    "search",
]
