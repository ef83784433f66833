"""Specialise: members cut out of a masked network, each with the channels alone that it needs.

A mask is no product any more but a choice of channels; weights lose the rows and columns that nobody
needs, norms become part of the layer before them, and what no mask precedes is computed once for all
members. Values that several layers read, such as a residual stream, stay whole as far as one of them
needs, and the others pick their channels.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from pluribus.mechanisms.graph.export import Operation
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.masks.demand import (
    RESHAPES,
    Kept,
    Some,
    Step,
    Whole,
    both,
    find_needs,
    make_step,
    merged_axis,
    needed,
    shape_of,
    zeros,
)

aten = torch.ops.aten
BATCH_NORMS = ("batch_norm", "_native_batch_norm_legit_no_training")


class Specialiser:
    """Cuts members out of a masked network.

    Args:
        program: The network's steps; its masks are among its tensors.
        masks: Their names.
        align: What widths are rounded up to, from 32 on.
    """

    def __init__(self, program: Program, masks: Iterable[str], align: int) -> None:
        self.program, self.align = program, align
        after = program.depends_on(list(masks))
        fixed = self._fixed()
        self._constant = [node for node in program.steps if node in fixed]
        called = [node for node in program.steps if node not in fixed and node.op == "call_function"]
        steps = [make_step(_operation(node)) for node in called]
        self.steps = {step.node: step for step in steps}
        self.trunk = [step for step in steps if step.node not in after]
        self.tail = [step for step in steps if step.node in after]
        masked = {node for node, name in program.held.items() if name in set(masks)}
        for node in self._constant:
            if not masked.isdisjoint(node.all_input_nodes):
                masked.add(node)
        self._masked = {step.node: step for step in self.tail if _is_masking(step, masked)}

    def member(self, values: Mapping[str, Tensor]) -> GraphModule:
        """The member with these tensors alone, from the inputs to the results."""
        cut = Cut(self, values)
        needs = cut.needs(self.tail, dict.fromkeys(self._results()))
        needs = cut.needs(self.trunk, needs)
        writer = Writer(cut, needs)
        writer.enter(dict.fromkeys(self.program.entries))
        return writer.write([*self.trunk, *self.tail], self.program.results)

    def members(self, rows: Iterable[Mapping[str, Tensor]]) -> tuple[GraphModule, list[GraphModule]]:
        """What all members have in common, and of each what follows, from that to the results."""
        cuts = [Cut(self, values) for values in rows]
        needs = [cut.needs(self.tail, dict.fromkeys(self._results())) for cut in cuts]
        tail = {step.node for step in self.tail}
        common: dict[Node, Kept] = {}
        for one in needs:
            for node, kept in one.items():
                if node not in tail:
                    common[node] = both(common[node], kept) if node in common else kept
        common = cuts[0].needs(self.trunk, common)
        reads = {node for step in self.tail for node in step.node.all_input_nodes}
        reads |= set(self.program.reads(self.program.results))
        known = {*self.program.entries, *(step.node for step in self.trunk)}
        border = [node for node in (*self.program.entries, *(s.node for s in self.trunk)) if node in reads]
        trunk = Writer(cuts[0], common)
        trunk.enter(dict.fromkeys(self.program.entries))
        first = trunk.write(self.trunk, tuple(border))
        have = {node: trunk.kept[node] for node in border if node in known}
        tails = []
        for cut, one in zip(cuts, needs, strict=True):
            writer = Writer(cut, one)
            writer.enter(have)
            tails.append(writer.write(self.tail, self.program.results))
        return first, tails

    def _results(self) -> list[Node]:
        return self.program.reads(self.program.results)

    def _fixed(self) -> set[Node]:
        """The steps that no input reaches."""
        reached = set(self.program.entries)
        fixed = set()
        for node in self.program.steps:
            random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
            if random or not reached.isdisjoint(node.all_input_nodes):
                reached.add(node)
            elif node.op == "call_function":
                fixed.add(node)
        return fixed


class Cut:
    """What is known of one member: its constants, its masks, and what its products read.

    Attributes:
        constants: The values of all nodes that no input reaches.
        weights: Of every product, its weight and its bias, a norm that follows it included.
        plain: Norms that are part of the product before them, and pass on what they get.
    """

    @torch.no_grad()
    def __init__(self, specialiser: Specialiser, values: Mapping[str, Tensor]) -> None:
        program, self.specialiser = specialiser.program, specialiser
        held = {node: values[name].detach() for node, name in program.held.items()}
        self.constants: dict[Node, Any] = {**held, **program.constants}
        for node in specialiser._constant:
            self.constants[node] = program.step(node, self.constants)
        self.masks = {node: self._mask(step) for node, step in specialiser._masked.items()}
        self.weights: dict[Node, tuple[Tensor, Tensor | None]] = {}
        self.plain: set[Node] = set()
        for step in specialiser.steps.values():
            weight, bias = (step.argument(name) for name in ("weight", "bias"))
            if step.is_product and weight in self.constants and (bias is None or bias in self.constants):
                self.weights[step.node] = self.constants[weight], self.constants.get(bias)
        for step in specialiser.steps.values():
            if step.operator in BATCH_NORMS:
                self._fold(step)
        self.inputs = {node: self._read(specialiser.steps[node]) for node in self.weights}

    def needs(self, steps: Sequence[Step], needs: dict[Node, Kept]) -> dict[Node, Kept]:
        """What is needed of every value, from what is needed after these steps."""
        needs = dict(needs)
        find_needs(reversed(steps), needs, self.masks, self.inputs, self.specialiser.align)
        return needs

    def _mask(self, step: Step) -> Some:
        mask = self.constants[step.operands[1][2]]
        axis = len(shape_of(step.node)) - mask.ndim
        return Some(axis, mask.reshape(-1) != 0)

    def _read(self, step: Step) -> Kept:
        """The channels of its input that a product reads: those that are not zero."""
        source = step.argument("input")
        zero = zeros(source, self.specialiser.steps, self.masks)
        return None if zero is None or zero.axis != step.channel_axis else Some(zero.axis, ~zero.chosen)

    def _fold(self, norm: Step) -> None:
        """Makes a norm part of the product before it, where it alone reads that."""
        node = norm.argument("input")
        training = norm.argument("training", False)
        if node not in self.weights or len(node.users) > 1 or training or len(shape_of(node)) < 2:
            return
        product = self.specialiser.steps[node]
        if product.channel_axis != 1 or "transpose" in product.operator:
            return
        held = [norm.argument(name) for name in ("running_mean", "running_var", "weight", "bias")]
        if any(one is not None and one not in self.constants for one in held) or None in held[:2]:
            return
        mean, variance, scale, shift = (self.constants.get(one) for one in held)
        fuse = fuse_linear_bn_weights if product.operator == "linear" else fuse_conv_bn_weights
        weight, bias = fuse(*self.weights[node], mean, variance, norm.argument("eps"), scale, shift)  # type: ignore[arg-type]
        self.weights[node] = weight.detach(), bias.detach()
        self.plain.add(norm.node)


class Writer:
    """Writes the steps of a cut as a module of their own.

    Args:
        cut: Whose constants these are.
        needs: What of every value is to be computed.
    """

    def __init__(self, cut: Cut, needs: Mapping[Node, Kept]) -> None:
        self.cut, self.needs = cut, needs
        self.graph, self.root = FxGraph(), nn.Module()
        self.written: dict[Node, Node] = {}
        self.kept: dict[Node, Kept] = {}
        self._attributes: dict[tuple[int, str], Node] = {}

    def enter(self, values: Mapping[Node, Kept]) -> None:
        """Takes some values as the module's inputs."""
        for node, kept in values.items():
            self.written[node], self.kept[node] = self.graph.placeholder(node.name), kept

    def write(self, steps: Sequence[Step], results: Sequence[Any]) -> GraphModule:
        """The module that computes some results, a list, whole."""
        for step in steps:
            if step.node in self.needs:
                self.written[step.node], self.kept[step.node] = self._step(step, self.needs[step.node])
        self.graph.output([self._result(one) for one in results])
        return GraphModule(self.root, self.graph)

    def _result(self, one: Any) -> Any:
        """A value as far as it was computed."""
        return self.written.get(one) or self._value(one, None) if isinstance(one, Node) else one

    def _step(self, step: Step, kept: Kept) -> tuple[Node, Kept]:
        node = step.node
        if node in self.cut.masks:
            mask = self.cut.masks[node]
            source = step.operands[0][2]
            chosen = mask.chosen if kept is None else mask.chosen & kept.chosen
            picked = self._fit(self.written[source], self.kept[source], Some(mask.axis, chosen), node)
            return self._fit(picked, Some(mask.axis, chosen), kept, node), kept
        if node in self.cut.weights:
            return self._product(step, kept), kept
        if node in self.cut.plain:
            source = step.operands[0][2]
            return self._fit(self.written[source], self.kept[source], kept, node), kept
        if step.operator == "<built-in function getitem>" and step.operands[0][2] in self.cut.plain:
            return self.written[step.operands[0][2]], self.kept[step.operands[0][2]]
        if step.operator == "sym_size":
            return self.graph.node_copy(node, self.written.__getitem__), None
        return self._plain(step, kept)

    def _plain(self, step: Step, kept: Kept) -> tuple[Node, Kept]:
        """A step with its operands cut to what is needed of them."""
        wanted: dict[tuple[str, int], Kept] = {}
        for name, position, operand in step.operands:
            wanted[name, position] = kept and needed(step, name, position, operand, kept)
        if step.operator in RESHAPES and kept is not None:
            return self._reshape(step, kept)
        order = iter(step.operands)

        def place(operand: Node) -> Node:
            name, position, same = next(order)
            assert same is operand
            value: Node = self._value(operand, wanted[name, position])
            return value

        arguments, named = map_arg((step.node.args, step.node.kwargs), place)
        written = self.graph.call_function(step.node.target, arguments, named)  # type: ignore[arg-type]
        if step.is_depthwise and kept is not None:
            _set_argument(written, "groups", kept.count)
        return written, kept

    def _reshape(self, step: Step, kept: Some) -> tuple[Node, Kept]:
        """A reshape of whole channels, more of which may be there than are needed."""
        source, shape = step.operands[0][2], shape_of(step.node)
        axis, repeats = merged_axis(shape_of(source), shape, kept.axis)
        channels = Some(axis, kept.chosen.view(-1, repeats).any(1))
        there = Some(kept.axis, channels.chosen.repeat_interleave(repeats))
        value = self._value(source, channels)
        others = [map_arg(argument, self.written.__getitem__) for argument in step.node.args[1:]]
        if step.operator in ("view", "reshape", "_unsafe_view"):
            sizes = [*others[0]]  # type: ignore[misc]
            sizes[kept.axis] = there.count
            return self.graph.call_function(aten.reshape.default, (value, sizes)), there
        return self.graph.call_function(step.node.target, (value, *others)), there  # type: ignore[arg-type]

    def _product(self, step: Step, kept: Kept) -> Node:
        weight, bias = self.cut.weights[step.node]
        source, read = step.argument("input"), self.cut.inputs[step.node]
        transposed = "transpose" in step.operator
        rows, columns = (1, 0) if transposed else (0, 1)
        if read is not None:
            weight = weight.index_select(columns, _index(read, weight))
        if kept is not None:
            weight = weight.index_select(rows, _index(kept, weight))
            bias = None if bias is None else bias.index_select(0, _index(kept, bias))
        value = self._value(source, read)
        schema = [argument.name for argument in step.node.target._schema.arguments]  # type: ignore[union-attr]
        others = [step.argument(name) for name in schema[3:]]
        held = [self._hold(weight), None if bias is None else self._hold(bias)]
        return self.graph.call_function(step.node.target, (value, *held, *others))  # type: ignore[arg-type]

    def _value(self, node: Node, wanted: Kept) -> Any:
        """A value of which just this is there."""
        if node in self.cut.constants:
            value = self.cut.constants[node]
            if wanted is not None:
                value = value.index_select(wanted.axis, _index(wanted, value))
            return self._hold(value) if isinstance(value, Tensor) else value
        if node.op == "get_attr":  # a graph of its own, such as that of a `torch.no_grad` region
            return self._keep(node)
        if not isinstance(node.meta.get("val"), Tensor):
            return self.written[node]
        return self._fit(self.written[node], self.kept[node], wanted, node)

    def _fit(self, value: Node, have: Kept, want: Kept, node: Node) -> Node:
        """The positions that are wanted of those that are there; others are zero."""
        if have is None and want is None:
            return value
        axis = (want or have).axis  # type: ignore[union-attr]
        size = shape_of(node)[axis]
        full = torch.ones(size, dtype=torch.bool)
        if have is not None and have.axis != axis:
            raise Whole
        there, asked = (full if one is None else one.chosen.cpu() for one in (have, want))
        if torch.equal(there, asked):
            return value
        places = torch.cumsum(there, 0) - 1
        places[~there] = int(there.sum())
        index = places[asked]
        if bool((index == int(there.sum())).any()):  # one zero more, for all that are not there
            rank = len(shape_of(node))
            value = self.graph.call_function(
                aten.constant_pad_nd.default, (value, [0, 0] * (rank - 1 - axis) + [0, 1], 0.0)
            )
        return self._pick(value, axis, index)

    def _pick(self, value: Node, axis: int, index: Tensor) -> Node:
        start, count = int(index[0]) if len(index) else 0, len(index)
        if torch.equal(index, torch.arange(start, start + count)):
            return self.graph.call_function(aten.slice.Tensor, (value, axis, start, start + count))
        device = next(iter(self.cut.constants.values())).device
        return self.graph.call_function(
            aten.index_select.default, (value, axis, self._hold(index.to(device)))
        )

    def _keep(self, node: Node) -> Node:
        name = str(node.target)
        if not hasattr(self.root, name):
            self.root.add_module(name, self.cut.specialiser.program.step(node, {}))
        return self.graph.get_attr(name)

    def _hold(self, tensor: Tensor) -> Node:
        name = f"tensor_{len(self._attributes)}"
        if tensor.is_floating_point():
            self.root.register_parameter(name, nn.Parameter(tensor.clone(), requires_grad=False))
        else:
            self.root.register_buffer(name, tensor.clone())
        self._attributes[id(tensor), name] = node = self.graph.get_attr(name)
        return node


def _operation(node: Node) -> Operation:
    name = str(node.target).removeprefix("aten.").split(".")[0]
    return Operation(node, name, "", "")


def _is_masking(step: Step, masked: set[Node]) -> bool:
    """Whether a step multiplies a value by a mask along one of its axes."""
    arguments = step.node.args
    return step.operator == "mul" and arguments[1] in masked and arguments[0] not in masked


def _index(kept: Some, tensor: Tensor) -> Tensor:
    return kept.chosen.nonzero().flatten().to(tensor.device)


def _set_argument(node: Node, name: str, value: Any) -> None:
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    arguments = list(node.args)
    position = names.index(name)
    if position < len(arguments):
        arguments[position] = value
        node.args = tuple(arguments)
    else:
        node.kwargs = {**node.kwargs, name: value}
