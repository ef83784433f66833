"""Results of a network, as the graph of `torch.export` returns them."""

from typing import Any

import torch
from torch import Tensor

from pluribus.mechanisms.network.torch_private import tree_flatten, tree_unflatten

# Beside tensors, what the graphs of torch.export return (2.13), numbers of sizes among them.
_PLAIN = (Tensor, int, float, complex, bool, str, torch.SymInt, torch.SymFloat, torch.SymBool, type(None))


def without_objects(returned: Any) -> Any:
    """Return the results of a network with None in place of objects that torch.export cannot return.

    Language models of Hugging Face return a cache of keys and values beside their logits (transformers 5).
    Nothing but the prediction is read of the results.
    """
    leaves, structure = tree_flatten(returned)
    if not any(isinstance(leaf, Tensor) for leaf in leaves):
        # A prediction inside of an object of another kind: torch tells what it is.
        return returned
    return tree_unflatten([leaf if isinstance(leaf, _PLAIN) else None for leaf in leaves], structure)
