"""Forms: shape and type of the values of a graph."""

from collections.abc import Mapping

import torch

Forms = Mapping[str, tuple[torch.Size, torch.dtype]]
"""Shape and type of values by the name of their step."""
