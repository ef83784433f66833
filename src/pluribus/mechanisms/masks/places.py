"""Places: find the tensors whose channels can have masks, and put masks there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from pluribus.errors import ConversionError
from pluribus.mechanisms.masks.reads import Read, find_reads
from pluribus.mechanisms.network.insert import insert, prove
from pluribus.mechanisms.network.layers import Site, there_are
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import Convolution, Dropout

READERS = (nn.Linear, nn.Bilinear, Convolution, nn.MultiheadAttention, nn.RNNBase)
"""Layers that sum over the channels they read: for these a mask takes a channel out."""
DROPOUTS = Dropout
BUFFER = "mask_"
"""Prefix of the masks' names in the layers that hold them; the input's position follows."""


@dataclass(frozen=True, eq=False)
class Place:
    """Describe a tensor that may have a mask, as its readers read it.

    Attributes:
        reads: All layers that read the tensor.
        axis: The axis of its channels, counted from the end.
        channels: How many there are.
    """

    reads: tuple[Read, ...]
    axis: int
    channels: int


@dataclass(frozen=True)
class Masked:
    """Multiply a layer's inputs by the masks that the layer holds.

    A mask `[channels]` is that of one member; masks `[batch, channels]` are those of the samples' members.

    Attributes:
        channels: By position of the input, its axis of channels, counted from the end.
        samples: By position of the input, its axis of samples.
    """

    channels: dict[int, int]
    samples: dict[int, int | None]

    def __call__(self, layer: nn.Module, position: int, values: Tensor) -> Tensor:
        if position not in self.channels:
            return values
        mask: Tensor = getattr(layer, f"{BUFFER}{position}").to(values.dtype)
        axis = self.channels[position]
        if mask.ndim == 1:
            return values * mask.view(-1, *[1] * (-1 - axis))
        samples, axis = self.samples[position] or 0, values.ndim + axis
        # The axes of the mask must come in the order in which the values have them.
        if samples > axis:
            mask = mask.T
        shape = [1] * values.ndim
        shape[samples], shape[axis] = values.shape[samples], values.shape[axis]
        return values * mask.reshape(shape)


def find_places(network: Network, sites: Sequence[Site], from_layer: str | None = None) -> list[Place]:
    """Return the hidden tensors that some layers read, in the order in which they are read.

    Args:
        network: The module with its example.
        sites: The layers.
        from_layer: The name, or a pattern of names, of the layer to begin with.
    """
    found = _since(find_reads(network, sites), from_layer, sites)
    reads = [read for read in found if _has_channels(read)]
    places = list[Place]()
    for together in _together(reads):
        axis, channels = _channels(together[0])
        places.append(Place(together, axis, channels))
    return places


def put_masks(network: Network, places: Sequence[Place], masks: Sequence[Tensor]) -> dict[str, Tensor]:
    """Give layers the first of each place's masks, and a hook that multiplies by it.

    Args:
        network: Changed in place.
        places: The tensors that get masks.
        masks: By place, `[members, channels]`.

    Returns:
        All masks by the name of the buffer that holds the first.
    """
    like = next((p for p in network.module.parameters() if p.is_floating_point()), torch.empty(0))
    drawn: dict[int, Tensor] = {}
    inserted: dict[Site, Masked] = {}
    for place, mask in zip(places, masks, strict=True):
        mask = mask.to(like)
        held = mask[0].clone()
        drawn[id(held)] = mask
        for read in place.reads:
            layer = read.site.module
            layer.register_buffer(f"{BUFFER}{read.position}", held)
            hook = inserted.setdefault(read.site, Masked({}, {}))
            hook.channels[read.position], hook.samples[read.position] = place.axis, read.samples
            # The mask takes the place of dropout.
            if isinstance(layer, DROPOUTS):
                layer.p = 0.0
    prove(network.module, insert(inserted), network.example)
    # By the first name of each buffer: layers that read one tensor share its mask.
    named = dict[str, Tensor]()
    for name, buffer in network.module.named_buffers():
        if id(buffer) in drawn:
            named[name] = drawn[id(buffer)]
    return named


def _since(reads: Sequence[Read], name: str | None, sites: Sequence[Site]) -> Sequence[Read]:
    """Return the reads from the first one of a layer on.

    Args:
        reads: All reads in their order.
        name: The name of a layer or of a module around it, or a pattern of names; None is all.
        sites: The layers that there are, for the message.
    """
    if name is None:
        return reads
    for position, read in enumerate(reads):
        if _is_named(read.site, name):
            return reads[position:]
    raise ConversionError(
        f"from_layer must name a layer that can have a mask, got {name!r}, which names none. "
        + there_are(sites)
    )


def _is_named(site: Site, pattern: str) -> bool:
    """Return whether a pattern names a layer, or a module that holds it."""
    inside = f"{pattern}.*"
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, inside) for name in site.names)


def _channels(read: Read) -> tuple[int, int]:
    """Return the axis of a tensor's channels, counted from the end, and how many there are."""
    axis = _channel_axis(read)
    return axis, read.shape[axis]


def _channel_axis(read: Read) -> int:
    """Return the axis of the channels of a convolution, or of the features of other layers, from the end."""
    layer, rank = read.site.module, len(read.shape)
    if isinstance(layer, Convolution):
        return -len(layer.kernel_size) - 1
    if not isinstance(layer, DROPOUTS):
        return -1
    # Dropout reads features last, unless it drops channels or reads pictures, which have channels second.
    of_features = isinstance(layer, nn.Dropout | nn.AlphaDropout) and rank < 4
    return -1 if of_features else 1 - rank


def _has_channels(read: Read) -> bool:
    """Return whether a tensor is hidden, and is read by a layer that mixes its channels."""
    layer = read.site.module
    # The network's inputs have no channels to drop; a single axis is that of the samples.
    if not read.learnt or len(read.shape) < 2:
        return False
    # Attention weights have positions, not channels.
    if isinstance(layer, DROPOUTS) and read.operator.startswith("Softmax"):
        return False
    # A depthwise convolution mixes no channels: the mask belongs to whatever reads its result.
    depthwise = isinstance(layer, Convolution) and layer.groups == layer.in_channels > 1
    return not depthwise


def _together(reads: Sequence[Read]) -> Iterator[tuple[Read, ...]]:
    """Yield the reads of one tensor, or of tensors that one layer reads, with equal channels."""
    waiting = list(reads)
    while waiting:
        found, waiting = [waiting[0]], waiting[1:]
        # `found` grows while it is walked: a read joins with all that join with it.
        for one in found:
            joined = [other for other in waiting if _share_mask(one, other)]
            found += joined
            waiting = [other for other in waiting if other not in joined]
        yield tuple(found)


def _share_mask(one: Read, other: Read) -> bool:
    """Return whether two reads have a tensor in common, and the same channels."""
    if set(one.tensors).isdisjoint(other.tensors):
        return False
    return _channels(one) == _channels(other)
