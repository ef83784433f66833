"""Which layers normalise."""

import re

from torch import nn

from pluribus.mechanisms.network.sites import Site

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
NAMED_NORM = re.compile(r"Norm(?:[123]d|Act|Act2d)?$")
"""Norms of other libraries, by the name of their class."""
KIND_OF_NORM = re.compile(r"Norm(?![a-z])|GRN$")
"""As in `RMSNormGated`, but `NormConv2d` is none: a norm has a number for each channel, and no matrix.
`GRN` is global response normalisation, and a gated residual network too.
"""


def is_norm(site: Site) -> bool:
    """Whether a layer normalises its input: batch, layer, group, instance and RMS norms of any library."""
    if isinstance(site.module, NORMS) or NAMED_NORM.search(site.kind):
        return True
    vectors = all(one.numel() == max(one.shape, default=1) for one in site.module.parameters())
    return bool(KIND_OF_NORM.search(site.kind)) and vectors
