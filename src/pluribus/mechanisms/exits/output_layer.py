"""Output layer: the last layer of a network, and the prediction that it makes."""

from dataclasses import dataclass

from torch import nn

from pluribus.mechanisms.exits.cut_points import CutPoints
from pluribus.mechanisms.exits.data_flow import DataFlow
from pluribus.mechanisms.exits.feature_axes import feature_axis
from pluribus.mechanisms.graph.operation import layer_of
from pluribus.mechanisms.network.torch_private import Convolution

# Layers whose outputs can be repeated for several slots.
LAST_LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class OutputLayer:
    """The last layer of a network.

    Attributes:
        name: The layer that makes the output; None if it is not a single one that runs once.
        width: The number of features that the layer reads; without one, that of the prediction.
        shape: Shape of the prediction, batch left out.
        axis: Axis of classes in the prediction, the batch axis counted.
    """

    name: str | None
    width: int
    shape: tuple[int, ...]
    axis: int


def find_output_layer(cut_points: CutPoints) -> OutputLayer:
    """Find the layer that makes the output of a network."""
    flow = cut_points.flow
    node = flow.program.prediction
    known = None if node is None else cut_points.axes.get(node)
    axis = feature_axis(flow.predicted, known)
    name = _last_layer(flow)
    return OutputLayer(name, _width(flow, name, axis), flow.predicted[1:], axis)


def _last_layer(flow: DataFlow) -> str | None:
    """Return the layer that makes the output; None if it is not a single one that runs once."""
    calls = [node for node in flow.program.calls if node in flow.positions]
    # A norm at the end would see the outputs of all slots as channels of one.
    if not calls or calls[-1] not in flow.layer_calls:
        return None
    name, position = layer_of(calls[-1]), flow.positions[calls[-1]]
    if name not in flow.shapes:
        return None
    if not isinstance(flow.network.module.get_submodule(name), LAST_LAYERS):
        return None
    # What jumps over the last layer would be added to the outputs of all slots, which it does not fit.
    if any(edge.jumps_over(position) for edge in flow.edges):
        return None
    return name


def _width(flow: DataFlow, last: str | None, axis: int) -> int:
    """Return the number of features that the last layer reads; without one, that of the prediction."""
    layer = None if last is None else flow.network.module.get_submodule(last)
    if isinstance(layer, nn.Linear):
        return layer.in_features
    if isinstance(layer, Convolution):
        return layer.in_channels
    # A prediction of one number for each sample has no axis but the batch.
    return flow.predicted[axis] if len(flow.predicted) > 1 else 1
