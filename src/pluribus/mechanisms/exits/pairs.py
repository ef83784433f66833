"""Pairs: one run of one network returns outputs for several inputs, at several depths.

A row is a pair of an input slot and a depth. All rows come out of one pass of a `Tapped` network; which of
them stay in eval mode, and how much each counts, follows from logits that may be learnt.
"""

import copy
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from pluribus.conversion_record import LayerRecord
from pluribus.errors import ConversionError, InputError, SettingError
from pluribus.mechanisms.exits.code import TappedCode
from pluribus.mechanisms.exits.exit_points import Exit, ExitPoints, find_exit_points
from pluribus.mechanisms.exits.tapped import Pair, Tapped, tap
from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.members.index import Index, Row, share_among
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.layers import Site
from pluribus.mechanisms.network.network import Network
from pluribus.method import Built, LayerChoice, Method
from pluribus.prediction import at_least_float32
from pluribus.ranges import check, invalid

KINDS = ("single_exit", "early_exit", "mimo", "mimmo", "in_between")
"""The cases of the Single Architecture Ensemble."""
# Beside a weight of one, single precision loses smaller ones.
DEAD = 1e-6
"""Weight among the exits of its input below which an exit is dropped."""
HEADS = ("narrow", "wide")
"""Channels of heads behind images: at most those of the network's last image, or as the last layer reads."""
COSTLY = 1.2
"""Multiply-adds of all exits, as a multiple of the network's, above which the conversion tells what they
cost: exits of a network of equal layers cost up to as much as it does."""


def kind_of(inputs: int, exits: int, depths: int) -> str:
    """Return the case of N inputs with K of D exits each, one of `KINDS`."""
    if inputs == 1:
        return "single_exit" if exits == 1 else "early_exit"
    if exits == 1:
        return "mimo"
    return "mimmo" if exits == depths else "in_between"


def preferences(logits: Tensor, temperature: float | Tensor) -> Tensor:
    """Return θ, how much an input prefers each depth, in at least float32; sums to one for each input.

    Args:
        logits: `[inputs, depths]`.
        temperature: Divides the logits.
    """
    return (at_least_float32(logits) / temperature).softmax(1)


def greatest(logits: Sequence[Sequence[float]], exits: int) -> list[Pair]:
    """Return, for each input, its depths of the greatest logits, in the order of inputs and then of depths.

    Among equals the deeper one is taken: it has seen more layers.

    Args:
        logits: Those of each depth, for each input.
        exits: How many depths of each input.
    """
    found = list[Pair]()
    for slot, values in enumerate(logits):
        order = sorted(range(len(values)), key=lambda depth: (values[depth], depth))
        found += [(slot, depth) for depth in sorted(order[-exits:])]
    return found


def _without_dead(pairs: Sequence[Pair], logits: Sequence[Sequence[float]], temperature: float) -> list[Pair]:
    """Return the pairs that keep a weight among those of their input.

    An exit that training gave no weight changes no prediction and should cost nothing.
    """
    found = list[Pair]()
    for slot, values in enumerate(logits):
        own = [depth for one, depth in pairs if one == slot]
        highest = max(values[depth] for depth in own)
        parts = [math.exp((values[depth] - highest) / temperature) for depth in own]
        found += [(slot, depth) for depth, part in zip(own, parts, strict=True) if part >= DEAD * sum(parts)]
    return found


class Pairs(Index):
    """Name rows by pairs of an input and a depth; logits choose those of eval mode.

    Args:
        inputs: How many inputs enter together.
        depths: How many exits there are.
        exits: How many exits of each input stay in eval mode.
        like: A tensor of the precision and on the device of the network.
        learnt: Whether the logits are learnt.

    Attributes:
        logits: `[inputs, depths]`, zero at first.
        temperature: Divides the logits.
        chosen: Exactly these pairs stay, `[rows, 2]`, in train mode too; None is those of the greatest
            logits.
        shares: How much each of the chosen counts, `[rows]`.
    """

    def __init__(self, inputs: int, depths: int, exits: int, like: Tensor, learnt: bool) -> None:
        super().__init__()
        self.inputs, self.depths, self.exits = inputs, depths, exits
        self.logits: Tensor
        self.temperature: Tensor
        self.chosen: Tensor | None
        self.shares: Tensor | None
        logits = like.new_zeros(inputs, depths)
        if learnt:
            self.logits = nn.Parameter(logits)
        else:
            self.register_buffer("logits", logits)
        self.register_buffer("temperature", like.new_ones(()))
        self.register_buffer("chosen", None)
        self.register_buffer("shares", None)

    @property
    def case(self) -> str:
        return kind_of(self.inputs, self.exits, self.depths)

    @property
    def preferences(self) -> Tensor:
        """Return θ, `[inputs, depths]`: how much each input prefers a depth; sums to one for each."""
        return preferences(self.logits.detach(), self.temperature)

    def readings(self) -> dict[str, float]:
        # Logits that are not learnt never change, and would fill the record.
        if not isinstance(self.logits, nn.Parameter):
            return {}
        found = {}
        for slot, row in enumerate(self.preferences.tolist(), 1):
            for depth, preference in enumerate(row, 1):
                found[f"preference_{slot}_{depth}"] = preference
        return found

    @property
    def kept(self) -> list[Pair]:
        """Return the pairs of eval mode."""
        if self.chosen is not None:
            return [(slot, depth) for slot, depth in self.chosen.tolist()]
        # A few numbers, read at every call: plain Python is faster than ten small tensors, and waits once.
        logits = self.logits.tolist()
        return _without_dead(greatest(logits, self.exits), logits, self.temperature.item())

    @property
    def count(self) -> int:
        return len(self.kept)

    def rows(self, training: bool) -> Sequence[Pair]:
        if training and self.chosen is None:
            return self._all()
        return self.kept

    def _all(self) -> list[Pair]:
        """Return all pairs, input by input."""
        return list(itertools.product(range(self.inputs), range(self.depths)))

    def weights(self, draws: int | None = None) -> Tensor:
        weights = self._weights()
        if draws is None:
            return weights
        check("draws", draws, int, at_least=1, at_most=len(weights))
        return nn.functional.pad(share_among(weights, range(draws)), (0, len(weights) - draws))

    def _weights(self) -> Tensor:
        """Return how much each row of eval mode counts, `[members]`."""
        if self.shares is not None:
            return share_among(at_least_float32(self.shares), range(self.count))
        # Logits of minus infinity take the other pairs out of the softmax.
        kept = torch.tensor(self.kept, device=self.logits.device).T
        logits = torch.full_like(self.logits, -torch.inf, requires_grad=False)
        logits[*kept] = self.logits.detach()[*kept]
        return preferences(logits, self.temperature)[*kept] / self.inputs

    def pick(self, named: Sequence[Any]) -> Sequence[Pair]:
        kept, every = self.kept, self._all()
        pairs = [one for one in named if isinstance(one, tuple)]
        for pair in pairs:
            if pair not in every:
                raise InputError(
                    f"members must be positions, or pairs of an input below {self.inputs} and a depth below "
                    f"{self.depths}, got {pair!r}. Count both from 0."
                )
        self.check_positions([one for one in named if not isinstance(one, tuple)])
        rows = list[Pair]()
        for one in named:
            rows.append(one if isinstance(one, tuple) else kept[one])
        return rows

    def keep(self, positions: Sequence[int], rows: Sequence[Row]) -> "Pairs":
        small = Pairs(self.inputs, self.depths, self.exits, self.logits, learnt=False)
        small.logits, small.temperature = self.logits.detach().clone(), self.temperature.clone()
        kept = self.kept
        small.chosen = torch.tensor([kept[one] for one in positions], device=self.logits.device)
        small.shares = share_among(self.weights(), positions).to(self.logits)
        # Divided once more, so that they sum to one in this precision too.
        small.shares = small.weights().to(self.logits)
        return small

    def mean(self, losses: Tensor) -> Tensor:
        """Return the mean of the losses of the pairs that stay, as much as each counts."""
        return (losses * self.weights().to(losses)).sum()

    def restore(self, positions: Sequence[int], saved: Mapping[str, Tensor]) -> None:
        kept = self.kept
        saved_pairs = saved["chosen"].tolist() if "chosen" in saved else []
        for row, (slot, depth) in zip(positions, saved_pairs, strict=False):
            # `shrink` raises for a position that is not there.
            if row in range(len(kept)):
                kept[row] = (slot, depth)
        self.chosen = torch.tensor(kept, device=self.logits.device)


def slot_orders(batch: int, inputs: int, repetition: float, times: int = 1) -> list[Tensor]:
    """Return the samples of a batch that each slot sees, in their order; targets follow.

    All slots see the whole batch. The last part of it, a share of `repetition`, is the same in all slots, so
    that they see the same sample at once; the rest each slot sees in an order of its own.

    Args:
        batch: How many samples there are.
        inputs: How many slots.
        repetition: In [0, 1]: 0 is independent orders, 1 the same sample in every slot.
        times: How often the batch is repeated; for one slot that would change nothing and is left out.
    """
    # A single slot has no other to be independent of.
    if inputs == 1:
        times, repetition = 1, 1.0
    order = torch.randperm(batch * times) % batch
    apart = round((1 - repetition) * len(order))
    head, tail = order[:apart], order[apart:]
    orders = list[Tensor]()
    for _ in range(inputs):
        own = head[torch.randperm(apart)]
        orders.append(torch.cat((own, tail)))
    return orders


def build_exits(
    network: Network,
    choices: Sequence[LayerChoice],
    seed: int,
    *,
    inputs: int = 1,
    exits: int | None = None,
    depths: int | None = None,
    where: str | tuple[str, ...] | None = None,
    start: str = "copy",
    learnt: bool = False,
    heads: str = "narrow",
) -> Built:
    """Build the members of a network with slots and exits.

    Args:
        network: Becomes `Tapped`.
        choices: The user's wishes for every layer: layers cannot be picked.
        seed: For heads and fresh layers.
        inputs: How many slots.
        exits: How many exits of each slot stay in eval mode; None is all.
        depths: How many depths there are, the output among them, of those that are found; None is all.
        where: Patterns of names to exit after; None finds places.
        start: Start of the first and last layer where there are several slots, `copy` or `fresh`.
        learnt: Whether the preference for depths is learnt.
        heads: Of images, `narrow` or `wide`, one of `HEADS`.
    """
    _refuse_picks(choices)
    kind = network.kind
    patterns = (where,) if isinstance(where, str) else where
    points = find_exit_points(network, patterns)
    if depths is None and not points.exits:
        _refuse_no_exits(network, points)
    points = replace(points, exits=_spread(points.exits, depths))
    if heads == "wide":
        points = replace(points, channels=None)
    found = len(points.exits) + 1
    if exits is not None and exits > found:
        names = ", ".join(exit.name for exit in points.exits)
        raise SettingError(
            f"exits must be at most {found}, the output of {kind} and the places before it ({names}), "
            f"got exits={exits}. Ask for fewer, or name more places with where=."
        )
    tapped = tap(network, points, inputs, start, seed)
    notes = _notes(points, inputs) + _notes_of_cost(network, tapped)
    network.become(tapped)
    rows = tuple(_row(choice.site, points, inputs) for choice in choices)
    # Weight decay would pull the preferences to the uniform ones.
    no_decay = frozenset({"index.logits"}) if learnt else frozenset()
    return Built(_members(network, exits or found, learnt), rows, tuple(notes), no_decay)


def _notes(points: ExitPoints, inputs: int) -> list[str]:
    """Return the notes of a conversion: the places of the exits, and inputs that slots share."""
    notes = list[str]()
    for place, exit in enumerate(points.exits, 1):
        notes.append(f"exit {place} after {exit.name}")
    notes.append(f"exit {len(points.exits) + 1} is the network's output")
    if inputs > 1 and points.aside:
        notes.append(f"{', '.join(points.aside)}: behind the first layers, that of the first slot for all")
    return notes


def _notes_of_cost(network: Network, tapped: Tapped) -> list[str]:
    """Return a note where exits cost much beside the network; none where they do not.

    Args:
        network: Before it is tapped.
        tapped: The network with its exits.
    """
    if not len(tapped.heads):
        return []
    example = network.example.copy()
    with dry_run(network.module, training=False), torch.no_grad(), Meter() as whole:
        network.module(*example.args, **example.keywords)
    # Shapes alone are needed, and no numbers.
    heads = copy.deepcopy(tapped.heads).to("meta").eval()
    with torch.no_grad(), Meter() as ends:
        for head, exit in zip(heads, tapped.points.exits, strict=True):
            like = next(head.parameters())
            head(like.new_empty(example.batch, *exit.shape))
    share = ends.multiply_adds / max(1, whole.multiply_adds)
    if share <= COSTLY:
        return []
    return [f"exits cost {share:.1f} × the network. Name fewer or deeper places with where="]


def _members(network: Network, exits: int, learnt: bool) -> Members:
    """Return the pairs of a `Tapped` network, which all share its tensors."""
    module = network.module
    assert isinstance(module, Tapped)
    numbers = (parameter for parameter in module.parameters() if parameter.is_floating_point())
    index = Pairs(module.inputs, module.depths, exits, next(numbers, torch.empty(0)), learnt)
    return Members(index, Stacked.of_network(network, {}), TappedCode.of(module))


def check_where(method: Method) -> None:
    """Check `where`, patterns of names or None, and make a tuple of it."""
    where = method.where  # type: ignore[attr-defined]
    patterns = (where,) if isinstance(where, str) else where
    if patterns is None:
        return
    is_list = isinstance(patterns, list | tuple) and bool(patterns)
    if not is_list or not all(isinstance(pattern, str) for pattern in patterns):
        raise invalid("where", "names or patterns of modules, or None", where)
    # Settings are frozen once the method is made.
    object.__setattr__(method, "where", tuple(patterns))


def depth_divergence(theta: Tensor) -> Tensor:
    """Return the KL divergence of θ `[inputs, depths]` from the uniform prior, log D − H(θ), `[inputs]`."""
    divergence: Tensor = math.log(theta.shape[1]) - torch.special.entr(theta).sum(1)
    return divergence


def _row(site: Site, points: ExitPoints, inputs: int) -> LayerRecord:
    """Return the record of a layer: widened for several inputs, or shared.

    Args:
        site: The layer.
        points: Holds the names of the first and last layers.
        inputs: How many slots there are.
    """
    became = list[str]()
    if not set(points.first).isdisjoint(site.names):
        became.append(f"takes {inputs} inputs")
    last = {points.last, *(part.name for part in points.tail)}
    if not last.isdisjoint(site.names):
        became.append(f"answers for {inputs} inputs")
    # A single input needs no wider layers.
    if inputs == 1 or not became:
        return LayerRecord(site.names, site.kind, "shared", "all exits share it")
    return LayerRecord(site.names, site.kind, " and ".join(became))


def _spread(found: Sequence[Exit], depths: int | None) -> tuple[Exit, ...]:
    """Return as many of the exits as leave `depths` with the output, evenly spread.

    Args:
        found: All exits that were found.
        depths: How many depths there shall be; None is all.
    """
    places = len(found) + 1
    if depths is None or depths == places:
        return tuple(found)
    if depths > places:
        names = ", ".join(exit.name for exit in found)
        raise SettingError(
            f"exits must be at most {places}, the output and the places before it ({names or 'none'}), "
            f"got exits={depths}. Ask for fewer, or name more places with where=."
        )
    # The output is the last place of all, so the others lie at equal steps before it.
    spread = list[Exit]()
    for place in range(1, depths):
        spread.append(found[round(place * places / depths) - 1])
    return tuple(spread)


def _refuse_no_exits(network: Network, points: ExitPoints) -> NoReturn:
    """Raise for a network without a place to exit; recommend MIMO only where MIMO converts it."""
    other = "or use MIMO, which needs none"
    try:
        tap(network, points, inputs=2)
    except ConversionError:
        other = "or use a method without exits, such as BatchEnsemble"
    raise ConversionError(
        "a place to exit before the output must be found, one that every path passes, got none between "
        f"layers. Name modules to exit after with where=, {other}."
    )


def _refuse_picks(choices: Sequence[LayerChoice]) -> None:
    """Raise if the user picked layers: an exit changes the network as a whole."""
    picked = list[str]()
    for choice in choices:
        if choice.picked or choice.overridden or choice.method is None:
            picked.append(choice.site.name)
    if picked:
        raise ConversionError(
            "layers cannot be picked for a network with exits, got include, exclude or overrides for "
            f"{', '.join(picked[:3])}. Name places to exit after with where=."
        )
