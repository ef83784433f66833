"""Cut points: the values that the whole data flow of a network passes, one after the other.

All paths from the input to the prediction pass a cut point, so that a prediction made from it has seen
what the rest of the network sees. An edge that jumps over a value, such as a skip connection, means that
the value is not all there is.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from pluribus.mechanisms.exits.data_flow import START, DataFlow, read_data_flow
from pluribus.mechanisms.exits.feature_axes import feature_axis, find_feature_axes, resolution
from pluribus.mechanisms.exits.nodes import layer_label, shape_of, stack_of
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import size_in_example


@dataclass(frozen=True, eq=False)
class CutPoint:
    """A module's output that the whole data flow passes.

    Attributes:
        name: The module's name.
        kind: The module's class.
        node: Node of the value.
        position: Position of the node in the order of steps.
        shape: Shape of the value, batch left out.
        axis: Axis of its features, the batch axis counted.
    """

    name: str
    kind: type[nn.Module]
    node: Node
    position: int
    shape: tuple[int, ...]
    axis: int

    @property
    def resolution(self) -> tuple[int, ...]:
        """Return the sizes of all axes but batch and features."""
        return resolution((0, *self.shape), self.axis)


@dataclass(frozen=True, eq=False)
class Segment:
    """A layer that is no norm, and the cut points from it to the next one.

    Attributes:
        resolution: Resolution of what the layer computes.
        points: The cut points, in the order of steps.
    """

    resolution: tuple[int, ...]
    points: list[CutPoint]


@dataclass(frozen=True, eq=False)
class CutPoints:
    """The cut points of a network.

    Attributes:
        flow: The data flow behind the input layers.
    """

    flow: DataFlow

    @cached_property
    def axes(self) -> dict[Node, int | None]:
        """Map each step of the flow to the axis of its features; None where operators do not tell."""
        return find_feature_axes(self.flow.positions)

    @cached_property
    def points(self) -> list[CutPoint]:
        """Return the cut points in the order of depth; outer modules before inner ones."""
        kinds = dict(self.flow.network.module.named_modules())
        found = []
        for name, values in self._outputs.items():
            if self.why_not(name):
                continue
            node, shape = values[0], self.flow.shapes[name]
            axis = feature_axis(shape, self.axes[node])
            position = self.flow.positions[node]
            found.append(CutPoint(name, type(kinds[name]), node, position, shape[1:], axis))
        return sorted(found, key=lambda one: (one.position, one.name.count(".")))

    @cached_property
    def _outputs(self) -> dict[str, list[Node]]:
        """Map each module to the nodes inside of it that nodes outside of it read."""
        found: dict[str, list[Node]] = {}
        for node in self.flow.positions:
            readers = [stack_of(user) for user in self.flow.users(node)]
            for name in stack_of(node):
                read_outside = any(name not in reader for reader in readers)
                if read_outside or node in self.flow.results:
                    found.setdefault(name, []).append(node)
        return found

    def why_not(self, name: str) -> str:
        """Return why the output of a module is no cut point; empty where it is one."""
        values = self._outputs.get(name, [])
        if name not in self.flow.shapes:
            return "it does not run exactly once, or returns no tensor"
        if not values:
            return "it computes nothing that the prediction follows from"
        if len(values) > 1:
            return f"{len(values)} values cross there, among them one from {layer_label(values[0])}"
        node = values[0]
        # A head behind the output would do the output's work again.
        if node in self.flow.results:
            return "it is the network's own output, which is the last exit anyway"
        return self._why_passed_by(node) or self._why_no_batch(node, self.flow.shapes[name])

    def _why_passed_by(self, node: Node) -> str:
        """Return which edge jumps over a value; empty where none does."""
        position = self.flow.positions[node]
        for edge in self.flow.edges:
            if edge.jumps_over(position):
                from_input = edge.start == START
                what = (
                    "an input enters later"
                    if from_input
                    else f"a skip connection from {layer_label(edge.source)}"
                )
                return f"{what} to {layer_label(edge.user)} passes by"
        return ""

    def _why_no_batch(self, node: Node, shape: tuple[int, ...]) -> str:
        """Return why no head can read a value sample by sample; empty where one can."""
        value = node.meta.get("val")
        # A head gets what the module returns, which need not be what the network reads of it.
        if not isinstance(value, Tensor) or shape_of(value) != shape:
            return "what is read of its output is not the first tensor that it returns"
        if value.ndim < 2 or not self._is_batch(value.shape[0]):
            return f"axis 0 of its output {list(shape)} is not the batch"
        return ""

    def _is_batch(self, size: Any) -> bool:
        """Return whether a size is that of the batch, and not one that equals it with the example alone."""
        if size_in_example(size) != self.flow.network.example.batch:
            return False
        return isinstance(size, torch.SymInt) or not self.flow.has_free_axes

    def only_head_after(self, point: CutPoint) -> bool:
        """Return whether nothing but norms, and linear layers of vectors, follows a cut point."""
        after = [node for node in self.flow.layer_calls if self.flow.positions[node] > point.position]
        others = [node for node in after if operator_name(node) != "linear" or node.meta["val"].ndim != 2]
        # The very last layer may be of any kind: it makes the output.
        return not others or others == after[-1:]

    def segments(self) -> list[Segment]:
        """Cut the flow at its layers, norms left out."""
        calls = self.flow.layer_calls
        if not calls:
            return []
        starts = [self.flow.positions[node] for node in calls]
        ends = [*starts[1:], len(self.flow.program.steps)]
        found = []
        for node, start, end in zip(calls, starts, ends, strict=True):
            value = node.meta.get("val")
            shape = shape_of(value[0] if isinstance(value, tuple | list) else value)
            size = resolution(shape, feature_axis(shape, self.axes[node]))
            between = [one for one in self.points if start <= one.position < end]
            found.append(Segment(size, between))
        return found


def read_cut_points(network: Network) -> CutPoints:
    """Read the data flow of a network in eval mode, and find its cut points.

    Raises:
        UnreadableError: the network cannot be exported.
    """
    return CutPoints(read_data_flow(network))
