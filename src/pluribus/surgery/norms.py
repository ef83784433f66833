"""Which layers normalise."""

import re

from torch import nn

from pluribus.surgery.sites import Site

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
NAMED_NORM = re.compile(r"Norm(?:[123]d|Act|Act2d)?$")
"""Norms of other libraries, by the name of their class."""


def is_norm(site: Site) -> bool:
    """Whether a layer normalises its input: batch, layer, group, instance and RMS norms of any library."""
    return isinstance(site.module, NORMS) or bool(NAMED_NORM.search(site.kind))
