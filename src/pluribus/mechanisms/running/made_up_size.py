"""Made-up sizes: a frozen ensemble takes inputs of one size, which nobody chose without an example."""

import warnings

from torch import nn

from pluribus.mechanisms.network.example import takes_other_sizes
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.frozen import MADE_UP, Frozen

WARNING = (
    "the frozen ensemble takes inputs like {size} alone: {why}. Pass convert(..., example=x), or call the "
    "ensemble on real inputs before."
)


def note_made_up_size(frozen: Frozen, network: nn.Module, example: Inputs | None, stacklevel: int) -> None:
    """Note and warn that a frozen ensemble takes one made-up size, where its network takes others too.

    Args:
        frozen: Made with the example; it gets the note.
        network: One member that takes inputs of all sizes that the user's network takes.
        example: The inputs that were made up; None if none could be made.
        stacklevel: Of the warning, as `warnings.warn` counts it from the caller of this function.
    """
    # Looped members take inputs of any size.
    if example is None or not frozen.kinds or not takes_other_sizes(network, example):
        return
    frozen.notes = (*frozen.notes, MADE_UP)
    size = frozen.kinds[0].signature.example
    warnings.warn(WARNING.format(size=size, why=MADE_UP), UserWarning, stacklevel=stacklevel + 1)
