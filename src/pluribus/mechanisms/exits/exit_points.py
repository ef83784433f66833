"""Exit points: where values enter a network, where all of its data flow passes one value, and where it ends.

All paths from the input to the prediction pass such a value, so that a prediction made from it has seen
what the rest of the network sees. Read on the graph of eval mode: an edge that jumps over a value, such as
a skip connection, says that the value is not all there is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from torch import nn

from pluribus.errors import ConversionError
from pluribus.mechanisms.exits.cut_points import CutPoint, CutPoints, read_cut_points
from pluribus.mechanisms.exits.input_layers import find_input_layers
from pluribus.mechanisms.network.network import Network

CONTAINERS = (nn.Sequential, nn.ModuleList)
FEWEST_STAGES = 3
"""How many plain sequences in a row are stages; two are features and a classifier."""


@dataclass(frozen=True)
class Exit:
    """A value from which a prediction may be made.

    Attributes:
        name: Of the module whose output it is.
        shape: Of the value, batch left out.
        axis: Of the value with its batch axis, where its features lie.
        needs: Names of the parameters that the value depends on.
    """

    name: str
    shape: tuple[int, ...]
    axis: int
    needs: frozenset[str] = field(default=frozenset(), repr=False, compare=False)


@dataclass(frozen=True)
class ExitPoints:
    """Where a network can be tapped.

    Attributes:
        first: The layers through which the input enters, in the order in which they run.
        exits: In the order of depth, without the network's own output, which is the last depth.
        last: The layer that makes the output; None if it is not a single one.
        width: The number of features that the last layer reads.
        output: Shape of the prediction, batch left out.
        axis: Of the prediction with its batch axis, where its classes lie.
        aside: Inputs that enter behind the first layers, such as masks.
        refusal: Why the network cannot take several inputs at once; empty where it can.
    """

    first: tuple[str, ...]
    exits: tuple[Exit, ...]
    last: str | None
    width: int
    output: tuple[int, ...]
    axis: int = -1
    aside: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def depths(self) -> int:
        """The number of exits, the network's own output among them."""
        return len(self.exits) + 1


def find_exit_points(network: Network, where: Sequence[str] | None = None) -> ExitPoints:
    """Finds first layers, exits and last layer of a network.

    Args:
        network: The module with its example.
        where: `fnmatch` patterns of the names of modules to exit after; None finds them: the ends of
            stages where blocks repeat in several shapes, every block where they repeat in one, and the
            values between layers, or the ends of resolutions, where none repeat.

    Raises:
        UnreadableError: the network cannot be exported.
        ConversionError: a module in `where` is not one that the whole data flow passes.
    """
    cut_points = read_cut_points(network)
    first, aside, refusal = find_input_layers(cut_points)
    if where is None:
        blocks = _blocks(network.module, cut_points)
        chosen = _outermost(cut_points, _stages(blocks, cut_points) if blocks else _chain(cut_points))
    else:
        chosen = _named(network.module, cut_points, where)
    chosen = sorted({one.node: one for one in chosen}.values(), key=lambda one: one.position)
    return ExitPoints(
        first=first,
        exits=tuple(Exit(one.name, one.shape, one.axis, cut_points.needs(one)) for one in chosen),
        last=cut_points.last,
        width=cut_points.width,
        output=cut_points.output,
        axis=cut_points.output_axis,
        aside=aside,
        refusal=refusal,
    )


def check_inputs(points: ExitPoints, inputs: int) -> None:
    """Refuses several inputs at once where the network cannot take them."""
    if inputs > 1 and points.refusal:
        raise ConversionError(
            f"every input must enter through layers that can be widened, however: {points.refusal}. "
            "Use inputs=1, or begin the network with a Linear, an Embedding or a convolution without groups."
        )


def _outermost(cut_points: CutPoints, chosen: Sequence[CutPoint]) -> list[CutPoint]:
    """The same values, each as the output of the outermost module that returns it."""
    by_node = {one.node: one for one in reversed(cut_points.points)}  # outer modules come first
    return [by_node[one.node] for one in chosen]


def _blocks(module: nn.Module, cut_points: CutPoints) -> list[CutPoint]:
    """The outermost repeated blocks: children of a container that are of one class and hold layers."""
    passed = {one.name: one for one in cut_points.points}
    found: list[CutPoint] = []

    def walk(name: str, layer: nn.Module) -> None:
        children = [(f"{name}.{key}".lstrip("."), child) for key, child in layer.named_children()]
        kinds: dict[type, list[str]] = {}
        for path, child in children if isinstance(layer, CONTAINERS) else ():
            if any(True for _ in child.children()) and any(True for _ in child.parameters()):
                kinds.setdefault(type(child), []).append(path)
        repeated = {
            kind: paths
            for kind, paths in kinds.items()
            if len(paths) >= (FEWEST_STAGES if kind is nn.Sequential else 2)
            and any(path in passed for path in paths)
        }
        if repeated:
            most = max(repeated.values(), key=len)
            found.extend(passed[path] for path in most if path in passed)
        else:
            for path, child in children:
                walk(path, child)

    walk("", module)
    return sorted(found, key=lambda one: one.position)


def _stages(blocks: list[CutPoint], cut_points: CutPoints) -> list[CutPoint]:
    """Every block of one shape, or the last of each run of equal shapes; sequences are stages already."""
    ends = blocks
    if len({one.shape for one in blocks}) > 1 and not all(one.kind is nn.Sequential for one in blocks):
        ends = [
            one
            for one, after in zip(blocks, [*blocks[1:], None], strict=True)
            if after is None or after.shape != one.shape
        ]
    return ends[:-1] if ends and cut_points.only_head_after(ends[-1]) else ends


def _chain(cut_points: CutPoints) -> list[CutPoint]:
    """The last value before each layer, or where the resolution changes, what a stage ends with."""
    segments = cut_points.segments()[:-2]  # what the last layer reads and makes is the own output's exit
    before = None
    each, ends = [], []
    for resolution, values in segments:
        changed = [one for one in values if one.resolution != resolution]
        if changed:  # by pooling, which ends a stage
            ends.append(changed[0])
        elif before is not None and before.resolution != resolution:  # by a layer, which begins one
            ends.append(before)
        if values:
            before = values[-1]
            each.append(before)
    return ends or each


def _named(module: nn.Module, cut_points: CutPoints, where: Sequence[str]) -> list[CutPoint]:
    names = [name for name, _ in module.named_modules() if name]
    passed = {one.name: one for one in cut_points.points}
    chosen = []
    for pattern in where:
        matching = _outer([name for name in names if fnmatchcase(name, pattern)])
        if not matching:
            shown = ", ".join(list(passed)[:8]) or "none"
            raise ConversionError(
                f"exits must name modules of the network, however: {pattern!r} names none. "
                f"It can exit after {shown}."
            )
        for name in matching:
            if name not in passed:
                raise ConversionError(
                    f"an exit must be a module whose output all of the data flow passes, however: {name}: "
                    f"{cut_points.why_not(name)}. Exit after the block that ends there."
                )
            chosen.append(passed[name])
    return chosen


def _outer(names: Sequence[str]) -> list[str]:
    """Those of some names that lie in none of the others: `*` crosses dots."""
    return [name for name in names if not any(name.startswith(f"{other}.") for other in names)]
