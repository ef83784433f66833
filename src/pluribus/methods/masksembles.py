"""Masksembles: a fixed binary mask on the channels of every hidden tensor for each member.

Durasov, Bagautdinov, Baque & Fua, "Masksembles for uncertainty estimation", CVPR 2021.

N masks with M ones each are drawn over M S positions, and positions that no mask uses are dropped. A
member is the network with its masks multiplied onto the inputs of its layers; the scale S leads from
one network (S = 1, equal masks) to an ensemble (S → ∞, disjoint masks), and many masks to dropout.

    width of the masks: M S (1 − (1 − 1/S)^N) on average                                     (1)
    IoU(S) = 1 / (2 S − 1), the overlap of two masks for large M                             (2)
    keep rate for N → ∞: 1 / S                                                               (3)

    symbol   here
    N        members
    S        scale
    M        ones, the channels that a member keeps of a tensor
    C        channels of the layer, which (1) makes the width of the masks: M = C / (S (1 − (1 − 1/S)^N))

Cost: one network in training, N with `repeat`. In prediction N passes, or frozen N networks of the kept
channels alone: about N (M / C)² of the network. No parameters.
Deviations: the masks have the layer's width exactly, whatever it is, where the authors' code fails
for about half of the settings at ten channels; they are saved; layers that read one tensor have one
mask; a mask is drawn for a sample at random, where the authors' code cuts the batch in its order. The
method's page has the measurements behind the defaults of `repeat` and `statistics`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from pluribus.axes import Between
from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError
from pluribus.mechanisms.masks.code import MaskedCode
from pluribus.mechanisms.masks.masked_norms import find_masked_statistics
from pluribus.mechanisms.masks.places import DROPOUTS, READERS, Place, find_places, put_masks
from pluribus.mechanisms.members.axis import split_batch
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.index import Fixed
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.per_sample import why_apart
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.dry_run import ALIKE, derived_seed, seeded
from pluribus.mechanisms.network.fresh import fresh_modules
from pluribus.mechanisms.network.layers import find_sites, is_norm, there_are
from pluribus.mechanisms.network.network import Network, built
from pluribus.mechanisms.widths.groups import read_widths
from pluribus.mechanisms.widths.resize import resize
from pluribus.method import Built, LayerChoice, Method
from pluribus.ranges import MOST_CHANNELS, MOST_MEMBERS, check
from pluribus.recipe import Recipe
from pluribus.settings import searched, setting

ALIGNED = 32
"""Kept widths below this are not rounded."""
MOST_LONGER = 4
"""Factor of the steps of a divided batch, at most; more was not measured."""
ATTEMPTS, LONGEST = 1000, 16
"""Draws of masks, and positions per channel, up to which the masks are those of the paper."""


def expected_width(ones: float, members: int, scale: float) -> float:
    """Compute Eq. (1): how many channels `members` masks of so many ones use on average."""
    if math.isinf(scale):
        return ones * members
    if scale == 1:
        return ones
    # expm1 and log1p keep the digits that (1 - 1/S)^N loses for large scales.
    return -ones * scale * math.expm1(members * math.log1p(-1 / scale))  # Eq. (1)


def overlap_law(scale: float) -> float:
    """Compute Eq. (2): intersection over union of two masks with many ones."""
    return 1 / (2 * scale - 1)  # Eq. (2)


def expected_overlap(ones: int, positions: int) -> float:
    """Compute the exact expectation of intersection over union for two masks over so many positions."""
    ways = math.comb(positions, ones)
    # Two masks with more ones than positions between them must meet.
    fewest = max(0, 2 * ones - positions)
    total = 0.0
    for both in range(fewest, ones + 1):
        probability = math.comb(ones, both) * math.comb(positions - ones, ones - both) / ways
        total += probability * both / (2 * ones - both)
    return total


def overlap(masks: Tensor) -> float:
    """Compute the average intersection over union of all pairs of masks, `[members, channels]`."""
    both = masks @ masks.T
    ones = masks.sum(1)
    union = ones[:, None] + ones[None, :] - both
    first, second = torch.triu_indices(len(masks), len(masks), offset=1)
    return float((both / union)[first, second].mean()) if len(first) else 1.0


def effective_scale(channels: int, members: int, ones: int) -> float:
    """Return the scale at which masks of so many ones have this width; infinite for disjoint masks."""
    if channels >= ones * members:
        return math.inf if members > 1 else 1.0
    # Bisect 1 / scale, over which the width of Eq. (1) falls from ones * members to ones. A hundred
    # halvings are more than a float has digits.
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        wide = expected_width(ones, members, 1 / middle) > channels
        low, high = (middle, high) if wide else (low, middle)
    return 1 / high


def kept_channels(channels: int, members: int, scale: float, align: int = 1) -> int:
    """Return the ones M of each mask over so many channels, nearest to those of the scale.

    At least ⌈channels / members⌉, without which a channel would be nobody's.
    """
    least = -(-channels // members)
    ones = max(least, int(channels / expected_width(1, members, scale) + 1e-9))
    if scale > 1 and align > 1 and ones >= ALIGNED:
        ones = round(ones / align) * align
        ones += align if ones < least else 0
    return min(ones, channels)


def generate_masks(channels: int, members: int, scale: float, generator: Generator, align: int = 1) -> Tensor:
    """Draw binary masks `[members, channels]`, each with as many ones, every channel in one at least.

    Args:
        channels: At least 1.
        members: At least 1.
        scale: From 1, all masks equal, to infinity, masks as disjoint as they can be.
        generator: Of the random numbers.
        align: What the number of ones is a multiple of from 32 on; see `effective_scale` for what is
            left of the scale.
    """
    check("channels", channels, int, at_least=1)
    check("members", members, int, at_least=1)
    check("align", align, int, at_least=1)
    _check_scale(scale)
    return draw_masks(channels, members, kept_channels(channels, members, scale, align), generator)


def draw_masks(channels: int, members: int, ones: int, generator: Generator) -> Tensor:
    """Draw masks with so many ones, all choices that use every channel being equally likely.

    The paper draws over more positions than there are channels and drops those that no mask uses; given
    how many are left, which are is a matter of names, so any number of positions may be drawn over.
    """
    # Disjoint masks are rare among all: cut a permutation instead of drawing until they come.
    if ones * members == channels:
        order = torch.randperm(channels, generator=generator, device="cpu")
        return torch.zeros(members, channels, **ALIKE).scatter(1, order.view(members, ones), 1.0)
    positions = _positions(channels, members, ones)
    attempts = ATTEMPTS if positions <= LONGEST * channels else 0
    for _ in range(attempts):
        masks = _draw(positions, members, ones, generator)
        used = masks.any(0)
        if int(used.sum()) == channels:
            return masks[:, used]
    return _covered(_draw(channels, members, ones, generator), generator)


def _draw(positions: int, members: int, ones: int, generator: Generator) -> Tensor:
    """Draw masks of so many ones over so many positions, each independently of the others."""
    order = torch.rand(members, positions, generator=generator, **ALIKE).argsort(1)
    return torch.zeros(members, positions, **ALIKE).scatter(1, order[:, :ones], 1.0)


def _positions(channels: int, members: int, ones: int) -> int:
    """Return the number of positions over which masks use so many channels on average."""

    def used(positions: int) -> float:
        return expected_width(ones, members, positions / ones)

    low, high = channels, channels + 1
    while used(high) < channels and high <= LONGEST * channels:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if used(middle) < channels else (low, middle)
    return min((low, high), key=lambda positions: abs(used(positions) - channels))


def _covered(masks: Tensor, generator: Generator) -> Tensor:
    """Move ones from channels in several masks to channels in none."""
    for channel in (masks.sum(0) == 0).nonzero().flatten().tolist():
        shared = (masks * (masks.sum(0) > 1)).nonzero()
        member, other = shared[int(torch.randint(len(shared), (), generator=generator))].tolist()
        masks[member, other], masks[member, channel] = 0.0, 1.0
    return masks


def _check_scale(scale: object) -> None:
    """Raise for a scale below 1."""
    # Infinity is a scale of its own: masks as disjoint as they can be.
    if scale != math.inf:
        check("scale", scale, float, at_least=1)


@dataclass(frozen=True)
class Masksembles(Method):
    """Members that see the network through fixed masks.

    Masks lie on the inputs of linear, convolutional, attention and recurrent layers, on whole channels
    or features; never on the network's own input. Layers that read one tensor share its mask.

    Args:
        members: How many, at least 1.
        scale: Overlap of the masks, at least 1: 1 is one network, infinity a set of disjoint ones. May
            differ from layer to layer.
        from_layer: The name, or a pattern of names, of the layer from which on there are masks; None is
            all of them.
        replace_dropout: Whether masks take the place of the network's dropout layers, and lie nowhere else.
        keep_capacity: Whether members keep as many channels as the network has, which is widened by
            Eq. (1) and drawn afresh, or the network its widths, of which members keep fewer.
        repeat: In training, whether every member sees every sample, at N times the cost, or each sample
            one member (the batch is divided at random).
        align: What widths of 32 and more are a multiple of in frozen members, which processors like; 1 keeps
            exactly the channels of the masks.
        statistics: `member` gives each member running statistics of the norms behind its masks, and a batch
            is normalised for each member by itself; `shared` has one for all, as in the authors' code, and
            normalises the samples of all members together.
        align_masks: Whether masks themselves have the widths of `align`, in training too.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> ensemble = pluribus.convert(model, Masksembles(members=4, scale=2.0))
        >>> ensemble(torch.zeros(7, 3)).shape
        torch.Size([4, 7, 2])
    """

    members: int = setting(
        4,
        at_least=1,
        at_most=MOST_MEMBERS,
        remedy="Use members=1 for a single network.",
        search=Between(2, 8),
    )
    scale: float = field(default=2.0, metadata=searched(Between(1.1, 4.0)))
    from_layer: str | None = setting(None, kind=str)
    replace_dropout: bool = setting(False)
    keep_capacity: bool = setting(False)
    repeat: bool = setting(False)
    align: int = setting(8, at_least=1, at_most=MOST_CHANNELS)
    statistics: str = setting("shared", choices=("member", "shared"))
    align_masks: bool = setting(False)

    version: ClassVar[int] = 2
    per_layer: ClassVar[frozenset[str]] = frozenset({"scale"})
    own_weights: ClassVar[bool] = False  # masks may stand before frozen layers, and where no weights are

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_scale(self.scale)

    @classmethod
    def upgrade(cls, values: dict[str, Any], version: int) -> dict[str, Any]:
        # Version 1 rounded the masks.
        return values if version > 1 else {"align_masks": True} | values

    def assign(self, batch: int, rows: Sequence[Any], progress: float) -> list[Tensor] | None:
        return None if self.repeat else split_batch(batch, len(rows))

    def recipe(self) -> Recipe:
        # A divided batch shows each member a part of the samples. Four times the steps took the validation
        # NLL from .229 to .090 on digits, where one network has .099 (500 steps, learning rate .001).
        return Recipe() if self.repeat else Recipe(longer=float(min(self.members, MOST_LONGER)))

    @property
    def on_trained(self) -> str:
        # Each member loses channels that the network had learnt to use.
        return "kept" if self.scale == 1 else "retrain"

    def build(self, network: Network, choices: Sequence[LayerChoice], seed: int) -> Built:
        # Find the tensors that get a mask.
        widths: dict[tuple[str, int], int] = {}
        notes: list[str] = []
        if self.keep_capacity:
            widths = _widths(self._places(network, choices))
            choices, notes = self._widen(network, choices, seed)
        places = self._places(network, choices)
        if not places:
            raise self._no_places(choices)

        # Make the masks, all from one generator: their order is part of what a seed means.
        ones = [self._ones(place, choices, widths) for place in places]
        generator = Generator().manual_seed(derived_seed(seed, 0))
        masks = []
        for place, count in zip(places, ones, strict=True):
            masks.append(draw_masks(place.channels, self.members, count, generator))
        held = put_masks(network, places, masks)
        statistics = self._statistics(network, choices, held)
        tensors = Stacked.of_network(network, held | statistics)
        # Members with statistics of their own never share a batch, which would be normalised as a whole.
        if not statistics:
            tensors.mixes = _have_samples(places) and _may_mix(network, tensors, self.members - 1)
            if not tensors.mixes:
                notes.append("in training members run one after the other: samples have no axis of their own")

        # Make the members.
        code = MaskedCode(Caller(network.module, network.output), frozenset(held), self.align)
        members = Members(Fixed(self.members), tensors, code)

        # Record what happened.
        became = []
        for number, (place, count) in enumerate(zip(places, ones, strict=True)):
            scale = effective_scale(place.channels, self.members, count)
            became.append(f"mask {number}, {count} of {place.channels} channels, scale {scale:.3g}")
        rows = tuple(_rows(choices, places, became))
        return Built(members, rows, tuple(notes))

    def _places(self, network: Network, choices: Sequence[LayerChoice]) -> list[Place]:
        """Return the tensors that get a mask, in the order in which they are read."""
        kinds = (DROPOUTS,) if self.replace_dropout else READERS
        sites = [c.site for c in choices if c.method and isinstance(c.site.module, kinds)]
        return find_places(network, sites, self.from_layer)

    def _no_places(self, choices: Sequence[LayerChoice]) -> ConversionError:
        """Return the error for a network without a tensor to mask."""
        missing = "no chosen layer of this kind"
        if self.replace_dropout:
            missing += ", and no dropout layer to replace"
        sites = [choice.site for choice in choices]
        return ConversionError(
            f"Masksembles must have a layer that reads hidden values, got {missing}. {there_are(sites)}"
        )

    def _ones(
        self,
        place: Place,
        choices: Sequence[LayerChoice],
        widths: Mapping[tuple[str, int], int],
    ) -> int:
        """Return how many channels of a tensor a member keeps.

        Args:
            place: The tensor, with the layers that read it.
            choices: What the user wants of every layer.
            widths: By layer and position of its input, channels before the network was widened.
        """
        readers = {read.site for read in place.reads}
        scales = set()
        for choice in choices:
            if choice.site in readers and isinstance(choice.method, Masksembles):
                scales.add(choice.method.scale)
        if len(scales) > 1:
            raise ConversionError(
                "layers that read one tensor must have one scale, got "
                f"{', '.join(f'{s:g}' for s in sorted(scales))} in "
                f"{', '.join(sorted(map(str, readers)))}. Override them alike."
            )
        if not self.keep_capacity:
            align = self.align if self.align_masks else 1
            return kept_channels(place.channels, self.members, scales.pop(), align)
        first = place.reads[0]
        known = widths.get((first.site.name, first.position), place.channels)
        # With fewer ones than this a channel would be nobody's.
        least = -(-place.channels // self.members)
        return max(min(known, place.channels), least)

    def _statistics(
        self, network: Network, choices: Sequence[LayerChoice], masks: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the running statistics that each member has for itself, `[members, ...]`, by name."""
        names: list[str] = []
        for choice in choices:
            if choice.method and is_norm(choice.site):
                names += choice.site.statistics
        if self.statistics == "shared" or not names:
            return {}
        tensors = network.tensors()
        behind = find_masked_statistics(network, masks, names)
        return {name: torch.stack([tensors[name].detach()] * self.members) for name in behind}

    def _widen(
        self, network: Network, choices: Sequence[LayerChoice], seed: int
    ) -> tuple[list[LayerChoice], list[str]]:
        """Put a network of the width of Eq. (1) into `network`, with weights drawn afresh.

        Returns:
            The choices, with the layers of the new network, and notes.
        """
        self._check_widening(network, choices)
        factor = expected_width(1, self.members, self.scale)
        if network.by_width is not None:
            with seeded(seed):
                network.become(built(partial(network.by_width, factor)))
        else:
            frozen = {name for name, p in network.module.named_parameters() if not p.requires_grad}
            network.become(resize(network, factor, widths=read_widths(network, frozen)))
        modules, redrawn = fresh_modules(network, 1, seed)
        network.become(modules[0])
        sites = {site.name: site for site in find_sites(network.module)}
        notes = [f"widths are {factor:.3g} times those of the network, and weights drawn afresh"]
        if redrawn:
            notes.append(f"bare parameters redrawn with their mean and deviation: {', '.join(redrawn)}")
        return [replace(choice, site=sites[choice.site.name]) for choice in choices], notes

    def _check_widening(self, network: Network, choices: Sequence[LayerChoice]) -> None:
        """Raise if one factor of width does not fit all hidden tensors."""
        for choice in choices:
            if isinstance(choice.method, Masksembles) and choice.method.scale != self.scale:
                raise ConversionError(
                    "scale must be the same for all layers with keep_capacity, which widens the network "
                    f"by one factor, got {choice.method.scale:g} in {choice.site}. Use one scale."
                )
        readers = [choice.site for choice in choices if isinstance(choice.site.module, READERS)]
        hidden, masked = find_places(network, readers), self._places(network, choices)
        if len(hidden) > len(masked):
            raise ConversionError(
                "masks must lie on all hidden tensors with keep_capacity, which widens the whole network, "
                f"got masks on {len(masked)} of {len(hidden)}. "
                "Leave out from_layer, replace_dropout, include and exclude."
            )


def _widths(places: Sequence[Place]) -> dict[tuple[str, int], int]:
    """Map each layer and position of its input to the channels of the tensor that it reads there."""
    widths = {}
    for place in places:
        for read in place.reads:
            widths[read.site.name, read.position] = place.channels
    return widths


def _have_samples(places: Sequence[Place]) -> bool:
    """Return True if samples have an axis of their own in every masked tensor."""
    for place in places:
        for read in place.reads:
            if read.samples is None:
                return False
    return True


def _may_mix(network: Network, tensors: Stacked, last: int) -> bool:
    """Return True if samples with the masks of the first and of the last row may share a batch."""
    half = network.example.batch // 2
    mixed = tensors.mixed([0, last], [half, network.example.batch - half])
    first, second = tensors.of([0, last])
    return not why_apart(network, first, second, mixed)


def _rows(
    choices: Sequence[LayerChoice],
    places: Sequence[Place],
    became: Sequence[str],
) -> Iterator[LayerRecord]:
    """Record the masks that each layer reads through."""
    for choice in choices:
        site = choice.site
        found = []
        for place, text in zip(places, became, strict=True):
            if any(read.site is site for read in place.reads):
                found.append(text)
        if found:
            yield LayerRecord(site.names, site.kind, " and ".join(found))
        else:
            yield LayerRecord(site.names, site.kind, "left", choice.reason or "reads no hidden channels")
