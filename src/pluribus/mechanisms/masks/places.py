"""Masking: masks on the channels of the tensors that layers read."""

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
"""Layers that sum over the channels they read."""
DROPOUTS = Dropout
BUFFER = "mask_"
"""What the masks are called in the layers that read through them, followed by the input's position."""


@dataclass(frozen=True, eq=False)
class Place:
    """A tensor that may have a mask, as its readers read it.

    Attributes:
        reads: All layers that read the tensor.
        axis: Of its channels, counted from the end.
        channels: How many there are.
    """

    reads: tuple[Read, ...]
    axis: int
    channels: int


@dataclass(frozen=True)
class Masked:
    """Multiplies a layer's inputs by the masks that the layer holds.

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
        mask = mask if samples < axis else mask.T
        return values * mask.reshape([n if a in (samples, axis) else 1 for a, n in enumerate(values.shape)])


def find_places(network: Network, sites: Sequence[Site], from_layer: str | None = None) -> list[Place]:
    """The hidden tensors that some layers read, in the order in which they are read.

    Args:
        network: The module with its example.
        sites: The layers.
        from_layer: The name, or a pattern of names, of the layer to begin with.
    """
    reads = [read for read in _since(find_reads(network, sites), from_layer, sites) if _has_channels(read)]
    return [
        Place(together, _channel_axis(together[0]), together[0].shape[_channel_axis(together[0])])
        for together in _together(reads)
    ]


def put_masks(network: Network, places: Sequence[Place], masks: Sequence[Tensor]) -> dict[str, Tensor]:
    """Gives layers the first of each place's masks `[members, channels]`, and a hook that multiplies by it.

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
            if isinstance(layer, DROPOUTS):
                layer.p = 0.0
    prove(network.module, insert(inserted), network.example)
    return {name: drawn[id(b)] for name, b in network.module.named_buffers() if id(b) in drawn}


def _since(reads: Sequence[Read], name: str | None, sites: Sequence[Site]) -> Sequence[Read]:
    """The reads from the first one of a layer on."""
    if name is None:
        return reads
    for position, read in enumerate(reads):
        if any(fnmatchcase(one, pattern) for one in read.site.names for pattern in (name, f"{name}.*")):
            return reads[position:]
    raise ConversionError(
        f"from_layer must name a layer that can have a mask, however: {name!r} names none. "
        + there_are(sites)
    )


def _channel_axis(read: Read) -> int:
    """Whole channels of convolutions, features of all others, counted from the end."""
    layer, rank = read.site.module, len(read.shape)
    if isinstance(layer, Convolution):
        return -len(layer.kernel_size) - 1
    of_features = isinstance(layer, nn.Dropout | nn.AlphaDropout) and rank < 4
    return 1 - rank if isinstance(layer, DROPOUTS) and not of_features else -1


def _has_channels(read: Read) -> bool:
    """Whether a tensor is hidden, is no attention weights, and is read by a layer that mixes its channels."""
    layer = read.site.module
    attends = isinstance(layer, DROPOUTS) and read.operator.startswith("Softmax")
    depthwise = isinstance(layer, Convolution) and layer.groups == layer.in_channels > 1
    return read.learnt and len(read.shape) > 1 and not attends and not depthwise


def _together(reads: Sequence[Read]) -> Iterator[tuple[Read, ...]]:
    """The reads of one tensor, or of tensors that one layer reads, with equal channels."""
    waiting = list(reads)
    while waiting:
        found, waiting = [waiting[0]], waiting[1:]
        for one in found:
            key = _channel_axis(one), one.shape[_channel_axis(one)]
            joined = [
                other
                for other in waiting
                if set(one.tensors) & set(other.tensors)
                and (_channel_axis(other), other.shape[_channel_axis(other)]) == key
            ]
            found += joined
            waiting = [other for other in waiting if other not in joined]
        yield tuple(found)
