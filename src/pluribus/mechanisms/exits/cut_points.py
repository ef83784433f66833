"""Cut points: the values that the whole data flow of a network passes, one after the other."""

import re
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from pluribus.mechanisms.graph.export import layer_of
from pluribus.mechanisms.graph.program import Program, read_program
from pluribus.mechanisms.network.dry_run import accepting, dry_run
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import select_output
from pluribus.mechanisms.network.returned import first_tensor
from pluribus.mechanisms.widths.flow import hint

NORMS = re.compile(r"(batch|layer|group|instance|rms)_norm")
NAMED_NORM = re.compile(r"Norm(?:[123]d|Act|Act2d)?$")
SHAPED = re.compile(r"^(zeros|ones|full|empty|rand|randn)_like|^new_")
"""Operators that read a shape and no numbers."""
CHANNELS_FIRST = re.compile(r"conv|batch_norm|group_norm|instance_norm|pool|upsample")
FEATURES_LAST = re.compile(r"linear|layer_norm|rms_norm|embedding|lstm|gru|rnn_")


def operator(node: Node) -> str:
    """The operator's name without its library and overload."""
    return str(node.target).removeprefix("aten.").split(".")[0]


def is_norm_call(node: Node) -> bool:
    """Whether an operator normalises, or belongs to a layer that does by the name of its class."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    return bool(NORMS.search(operator(node)) or (stack and NAMED_NORM.search(str(stack[-1][1]))))


@dataclass(frozen=True, eq=False)
class CutPoint:
    """A module's output that the whole data flow passes.

    Attributes:
        name: Of the module.
        kind: Its class.
        node: Of the value.
        position: In the order of steps.
        shape: Batch left out.
        axis: Where features lie, with the batch axis.
    """

    name: str
    kind: type[nn.Module]
    node: Node
    position: int
    shape: tuple[int, ...]
    axis: int

    @property
    def resolution(self) -> tuple[int, ...]:
        """The sizes of all axes but batch and features."""
        return resolution((0, *self.shape), self.axis)


def resolution(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The sizes of all axes but batch and features."""
    return tuple(size for place, size in enumerate(shape) if place not in (0, axis % len(shape)))


@dataclass(frozen=True, eq=False)
class CutPoints:
    """The data flow behind the first layers.

    Attributes:
        network: Whose it is.
        program: Its steps.
        before: The steps that inputs reach without passing a layer that is no norm, and the inputs.
        sources: The first calls of such layers.
        flow: By step that follows from them, and that the prediction follows from, its position.
        shapes: By name of a module that runs once, the shape of the first tensor that it returns.
        predicted: The shape of the prediction.
    """

    network: Network
    program: Program
    before: frozenset[Node]
    sources: tuple[Node, ...]
    flow: dict[Node, int]
    shapes: dict[str, tuple[int, ...]]
    predicted: tuple[int, ...]

    @cached_property
    def calls(self) -> list[Node]:
        """The steps of the flow where parameters come in, norms left out."""
        return [node for node in self.program.calls if node in self.flow and not is_norm_call(node)]

    @cached_property
    def jumps(self) -> list[tuple[int, int, Node, Node]]:
        """All edges of the flow as positions and nodes; a source begins before everything."""
        end = len(self.program.steps)
        edges = [(-1, self.flow[node], node, node) for node in self.sources if node in self.flow]
        for node, position in self.flow.items():
            users = [user for user in node.users if user in self.flow]
            edges += [(position, self.flow[user], node, user) for user in users]
            if node in self.results:
                edges.append((position, end, node, node))
        return edges

    @cached_property
    def results(self) -> set[Node]:
        """The nodes that the prediction is made of."""
        return set(self.program.reads(self.program.results))

    @cached_property
    def axes(self) -> dict[Node, int | None]:
        """By step of the flow, where features lie, as far as operators tell."""
        found: dict[Node, int | None] = {}
        for node in self.flow:
            found[node] = _axis(node, found)
        return found

    @cached_property
    def points(self) -> list[CutPoint]:
        """The passed outputs of modules in the order of depth; outer modules before inner ones."""
        kinds = dict(self.network.module.named_modules())
        found = []
        for name, values in self._outputs.items():
            if len(values) == 1 and not self.why_not(name):
                node, shape = values[0], self.shapes[name]
                axis = feature_axis(shape, self.axes[node])
                found.append(CutPoint(name, type(kinds[name]), node, self.flow[node], shape[1:], axis))
        return sorted(found, key=lambda one: (one.position, one.name.count(".")))

    @cached_property
    def _outputs(self) -> dict[str, list[Node]]:
        """By module, the nodes inside of it that nodes outside of it read."""
        found: dict[str, list[Node]] = {}
        for node in self.flow:
            users = [stack_of(user) for user in node.users if user in self.flow]
            for name in stack_of(node):
                read = node in self.results or any(name not in user for user in users)
                if read:
                    found.setdefault(name, []).append(node)
        return found

    def why_not(self, name: str) -> str:
        """Why the output of a module is no value that the whole data flow passes; empty where it is."""
        values = self._outputs.get(name, [])
        if name not in self.shapes:
            return "it does not run exactly once, or returns no tensor"
        if not values:
            return "it computes nothing that the prediction follows from"
        node = values[-1]
        if len(values) > 1:
            return f"{len(values)} values cross there, among them one from {_layer(values[0])}"
        if node in self.results:
            return "it is the network's own output, which is the last exit anyway"
        position = self.flow[node]
        for start, end, source, user in self.jumps:
            if start < position < end:
                what = "an input enters later" if start < 0 else f"a skip connection from {_layer(source)}"
                return f"{what} to {_layer(user)} passes by"
        value, batch = node.meta.get("val"), self.network.example.batch
        if not isinstance(value, Tensor) or shape_of(value) != self.shapes[name]:
            return "what is read of its output is not the first tensor that it returns"
        if value.ndim < 2 or not self._is_batch(value.shape[0], batch):
            return f"axis 0 of its output {list(self.shapes[name])} is not the batch"
        return ""

    def _is_batch(self, size: Any, batch: int) -> bool:
        free = [entry for entry in self.program.entries if isinstance(entry.meta.get("val"), Tensor)]
        dynamic = any(isinstance(one, torch.SymInt) for entry in free for one in entry.meta["val"].shape)
        return bool(hint(size) == batch) and (isinstance(size, torch.SymInt) or not dynamic)

    def only_head_after(self, value: CutPoint) -> bool:
        """Whether nothing but norms, and linear layers of vectors, follows a value."""
        after = [node for node in self.calls if self.flow[node] > value.position]
        ends = [node for node in after if operator(node) != "linear" or node.meta["val"].ndim != 2]
        return not ends or ends == after[-1:]

    def segments(self) -> list[tuple[tuple[int, ...], list[CutPoint]]]:
        """Of every layer that is no norm, its resolution and the values passed before the next one."""
        if not self.calls:
            return []
        ends = [self.flow[node] for node in self.calls[1:]] + [len(self.program.steps)]
        found = []
        for node, end in zip(self.calls, ends, strict=True):
            start, value = self.flow[node], node.meta.get("val")
            shape = shape_of(value[0] if isinstance(value, tuple | list) else value)
            size = resolution(shape, feature_axis(shape, self.axes[node]))
            between = [one for one in self.points if start <= one.position < end]
            found.append((size, between))
        return found

    def needs(self, value: CutPoint) -> frozenset[str]:
        """Names of the parameters that a value depends on."""
        seen, waiting = set(), [value.node]
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += node.all_input_nodes
        return frozenset(self.program.held[node] for node in seen & self.program.parameters)

    @cached_property
    def last(self) -> str | None:
        """The layer that makes the output; None if it is not a single one that runs once."""
        after = [node for node in self.program.calls if node in self.flow]
        if not after or after[-1] not in self.calls:
            return None
        node, name = after[-1], layer_of(after[-1])
        layer = self.network.module.get_submodule(name)
        jumped = any(start < self.flow[node] < end for start, end, _, _ in self.jumps)
        plain = isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d)
        return name if plain and not jumped and name in self.shapes else None

    @cached_property
    def width(self) -> int:
        """The number of features that the last layer reads; without one, of the prediction."""
        layer = None if self.last is None else self.network.module.get_submodule(self.last)
        if isinstance(layer, nn.Linear):
            return layer.in_features
        if isinstance(layer, nn.modules.conv._ConvNd):
            return layer.in_channels
        return self.output[self.output_axis - (self.output_axis > 0)] if self.output else 1

    @cached_property
    def output(self) -> tuple[int, ...]:
        """Shape of the prediction, batch left out."""
        return self.predicted[1:]

    @property
    def output_axis(self) -> int:
        """Of the prediction with its batch axis, where its classes lie."""
        node = self.program.prediction
        known = self.axes.get(node) if node is not None else None
        return feature_axis(self.predicted, known)


def read_cut_points(network: Network) -> CutPoints:
    """Reads the data flow of a network in eval mode."""
    program = read_program(network)
    calls = [node for node in program.calls if not is_norm_call(node)]
    before, sources = set(program.entries), []
    for node in program.steps:
        if _reads_numbers(node) and not before.isdisjoint(node.all_input_nodes):
            if node in calls:
                sources.append(node)
            else:
                before.add(node)
    reached = set(sources or program.entries)
    for node in program.steps:
        if _reads_numbers(node) and not reached.isdisjoint(node.all_input_nodes):
            reached.add(node)
    sources = [node for node in sources if not reached.intersection(node.all_input_nodes)]
    live = set(program.reads(program.results))
    for node in reversed(program.steps):
        if node in live and _reads_numbers(node):
            live.update(node.all_input_nodes)
    flow = {node: place for place, node in enumerate(program.steps) if node in reached and node in live}
    before -= reached if sources else set()
    return CutPoints(network, program, frozenset(before), tuple(sources), flow, *_shapes(network))


def _reads_numbers(node: Node) -> bool:
    """Whether a step computes numbers from numbers, and not sizes or from sizes alone."""
    value = node.meta.get("val")
    sizes = isinstance(value, int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool)
    return not sizes and not SHAPED.search(operator(node))


def stack_of(node: Node) -> list[str]:
    """The names of all modules that run a node, outermost first, without the network itself."""
    names = [str(entry[0]) for entry in node.meta.get("nn_module_stack", {}).values()]
    return [
        re.sub(r"@\d+$", "", name).removeprefix("network.") for name in names if name.startswith("network.")
    ]


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape that a value has with the example."""
    return tuple(int(hint(size)) for size in value.shape)


def feature_axis(shape: tuple[int, ...], known: int | None) -> int:
    """Where features lie: what operators told, else axis 1 of images and the last axis of all others."""
    axis = known if known is not None else (1 if len(shape) > 3 else -1)
    return -1 if len(shape) < 3 or axis % len(shape) == len(shape) - 1 else axis % len(shape)


def _axis(node: Node, found: dict[Node, int | None]) -> int | None:
    name, value = operator(node), node.meta.get("val")
    if CHANNELS_FIRST.search(name):
        return 1
    if FEATURES_LAST.search(name):
        return -1
    operands = [one for one in node.all_input_nodes if one in found]
    if not isinstance(value, Tensor) or not operands:
        return None
    if not _rank(operands[0]):  # one of several results
        return found[operands[0]]
    source = operands[0]
    same = [one for one in operands if _rank(one) == value.ndim]
    known = found[source]
    if known is None:
        return next((found[one] for one in same if found[one] is not None), None)
    axis = known % _rank(source)
    if name == "permute":
        axes = [one % value.ndim for one in node.args[1]]  # type: ignore[union-attr,operator]
        return axes.index(axis)
    if name == "transpose":
        one, two = (int(str(place)) % value.ndim for place in node.args[1:3])
        return {one: two, two: one}.get(axis, axis)
    if value.ndim == _rank(source):
        return axis
    before, after = shape_of(source.meta["val"]), shape_of(value)
    if known in (-1, len(before) - 1) and before[-1] == after[-1]:
        return -1
    return axis if axis < len(after) and before[axis] == after[axis] else None


def _rank(node: Node) -> int:
    value = node.meta.get("val")
    return value.ndim if isinstance(value, Tensor) else 0


def _shapes(network: Network) -> tuple[dict[str, tuple[int, ...]], tuple[int, ...]]:
    """Shapes of what modules that are called once return, in eval mode, and of the prediction."""
    seen: dict[nn.Module, list[tuple[int, ...]]] = {}

    def watch(layer: nn.Module, _: Any, returned: Any) -> None:
        value = first_tensor(returned)
        seen.setdefault(layer, []).append(() if value is None else tuple(value.shape))

    module, example = network.module, network.example
    with ExitStack() as hooks:
        for layer in module.modules():
            handle = layer.register_forward_hook(watch)
            hooks.callback(handle.remove)
        with accepting(example), dry_run(module, False), torch.no_grad():
            returned = module(*example.args, **example.keywords)
    once = {
        name: seen[layer][0]
        for name, layer in module.named_modules()
        if len(seen.get(layer, [])) == 1 and seen[layer][0]
    }
    return once, tuple(select_output(returned, network.output).shape)


def _layer(node: Node) -> str:
    return layer_of(node) or f"{operator(node)} in the network itself"
