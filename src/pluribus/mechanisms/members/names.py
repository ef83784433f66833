"""Names of saved tensors: files keep those of version 0.1, where members were one object.

now                                   in files
members.index.seeds                   binding.seeds
members.tensors.own.0.weight          binding.own.0.weight
members.learnt.tensors.own.0.weight   binding.own.0.weight            members with a prior
members.prior.tensors.own.0.weight    binding.prior.own.0.weight      their prior networks
"""

import re
from collections.abc import Collection, Iterable, Mapping

from torch import Tensor

PART = re.compile(r"^members\.(learnt\.|prior\.|)(?:index|tensors)\.")


def saved_name(name: str) -> str:
    """Return the name that a tensor of an ensemble has in a file."""
    return PART.sub(lambda match: "binding." + match[1].replace("learnt.", ""), name)


def saved_tensors(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict with the names of a file."""
    return {saved_name(name): tensor for name, tensor in state.items()}


def current_names(names: Iterable[str], saved: Collection[str]) -> dict[str, str]:
    """Map names of a file to those of the ensemble now, where they differ.

    Args:
        names: Of all tensors of the ensemble.
        saved: Of the tensors in the file.
    """
    held = list(names)
    now, known = {saved_name(name): name for name in held}, set(held)
    found = {}
    for old in saved:
        name = old if old in known else now.get(saved_name(old), old)
        if name != old:
            found[old] = name
    return found


def renamed(saved: Mapping[str, Tensor], names: Iterable[str]) -> dict[str, Tensor]:
    """Return the tensors of a file by the names that the ensemble has for them now."""
    found = current_names(names, saved.keys())
    return {found.get(name, name): tensor for name, tensor in saved.items()}
