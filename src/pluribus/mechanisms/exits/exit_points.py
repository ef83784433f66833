"""Exit points: where a network can be left early, where its inputs enter, and where it ends.

An exit is a cut point: the whole data flow passes it. Unless the user names modules, exits are the ends of
stages or blocks where blocks repeat, and values between layers where none do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from torch import nn

from pluribus.errors import ConversionError
from pluribus.mechanisms.exits.cut_points import CutPoint, CutPoints, read_cut_points
from pluribus.mechanisms.exits.input_layers import find_input_layers
from pluribus.mechanisms.exits.output_layer import find_output_layer
from pluribus.mechanisms.exits.output_tail import TailLayer, find_output_tail
from pluribus.mechanisms.exits.suggested_exits import suggest_exits
from pluribus.mechanisms.exits.widening import SOURCE
from pluribus.mechanisms.network.network import Network

# How many modules a message lists: enough to see how names look, and still one line.
SHOWN = 8


@dataclass(frozen=True)
class Exit:
    """A value from which a prediction may be made.

    Attributes:
        name: Name of the module whose output it is.
        shape: Shape of the value, batch left out.
        axis: Axis of its features, the batch axis counted.
        needs: Names of the parameters that the value depends on.
    """

    name: str
    shape: tuple[int, ...]
    axis: int
    needs: frozenset[str] = field(default=frozenset(), repr=False, compare=False)


@dataclass(frozen=True)
class ExitPoints:
    """The exits of a network, its first layers and its last one.

    Attributes:
        first: The layers through which the input enters, in the order in which they run.
        exits: In the order of depth, without the network's own output, which is the last depth.
        last: The layer that makes the output; None if it is not a single one.
        tail: The layers that make it together, where it is not a single one; none if they cannot be found.
        width: The number of features that the last layer reads.
        output: Shape of the prediction, batch left out.
        axis: Axis of classes in the prediction, the batch axis counted.
        aside: Inputs that enter behind the first layers, such as masks.
        refusal: Why the network cannot take several inputs at once; empty where it can.
        channels: Of the last image inside of the network; None where there is none, or heads are wide.
    """

    first: tuple[str, ...]
    exits: tuple[Exit, ...]
    last: str | None
    width: int
    output: tuple[int, ...]
    axis: int = -1
    aside: tuple[str, ...] = ()
    refusal: str = ""
    tail: tuple[TailLayer, ...] = ()
    channels: int | None = None

    @property
    def head_width(self) -> int:
        """Return the channels of a head behind an image.

        A network that flattens its last image has features for each of its positions, of which a head, which
        averages over them, needs one set.
        """
        return self.width if self.channels is None else min(self.width, self.channels)

    @property
    def makers(self) -> tuple[TailLayer, ...]:
        """Return the layers that make the output, a single one or several."""
        return self.tail or (TailLayer(str(self.last), SOURCE),)

    @property
    def depths(self) -> int:
        """Return the number of exits, the network's own output among them."""
        return len(self.exits) + 1


def find_exit_points(network: Network, where: Sequence[str] | None = None) -> ExitPoints:
    """Find the exits, the first layers and the last layer of a network.

    Args:
        network: The module with its example.
        where: `fnmatch` patterns of the names of modules to exit after. None finds them: the ends of
            stages where blocks repeat in several shapes, every block where they repeat in one, and the
            values between layers, or the ends of resolutions, where none repeat.

    Raises:
        UnreadableError: the network cannot be exported.
        ConversionError: a module in `where` is no cut point.
    """
    cut_points = read_cut_points(network)
    entering = find_input_layers(cut_points.flow)
    leaving = find_output_layer(cut_points)
    chosen = (
        suggest_exits(network.module, cut_points)
        if where is None
        else _named(network.module, cut_points, where)
    )
    # Several modules may return one value: it is one exit.
    distinct = {one.node: one for one in chosen}
    exits = []
    for one in sorted(distinct.values(), key=lambda one: one.position):
        exits.append(Exit(one.name, one.shape, one.axis, cut_points.flow.parameters_of(one.node)))
    return ExitPoints(
        first=entering.names,
        exits=tuple(exits),
        last=leaving.name,
        width=leaving.width,
        output=leaving.shape,
        axis=leaving.axis,
        aside=entering.aside,
        refusal=entering.refusal,
        tail=() if leaving.name is not None else find_output_tail(cut_points.flow),
        channels=_last_channels(cut_points.points),
    )


def _last_channels(points: Sequence[CutPoint]) -> int | None:
    """Return how many channels the last image has that all of the data flow passes; None without one."""
    found = [one.shape[0] for one in points if one.axis == 1 and len(one.shape) > 1]
    return found[-1] if found else None


def check_inputs(points: ExitPoints, inputs: int) -> None:
    """Raise where the network cannot take several inputs at once.

    Raises:
        ConversionError: `inputs` is above 1, and the first layers cannot be widened.
    """
    if inputs > 1 and points.refusal:
        raise ConversionError(
            f"every input must enter through layers that can be widened, got {points.refusal}. "
            "Use inputs=1, or begin the network with a Linear, an Embedding or a convolution without groups."
        )


def _named(module: nn.Module, cut_points: CutPoints, where: Iterable[str]) -> list[CutPoint]:
    """Return the cut points that patterns name; raise where one names none."""
    names = [name for name, _ in module.named_modules() if name]
    points = {one.name: one for one in cut_points.points}
    chosen = []
    for pattern in where:
        matching = _outer([name for name in names if fnmatchcase(name, pattern)])
        if not matching:
            shown = ", ".join(list(points)[:SHOWN]) or "none"
            raise ConversionError(
                f"exits must name modules of the network, got {pattern!r}, which names none. "
                f"It can exit after {shown}."
            )
        for name in matching:
            if name not in points:
                raise ConversionError(
                    f"an exit must be a module whose output all of the data flow passes, got {name}: "
                    f"{cut_points.why_not(name)}. Exit after the block that ends there."
                )
            chosen.append(points[name])
    return chosen


def _outer(names: Sequence[str]) -> list[str]:
    """Return the names that lie in none of the others."""
    # A star matches across dots, so that `a*` names `a` and all that is inside of it.
    prefixes = tuple(f"{name}." for name in names)
    return [name for name in names if not name.startswith(prefixes)]
