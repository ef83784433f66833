"""Program: a network's data flow as steps that change nothing but what they return.

Read from the graph of eval mode, with in-place operators replaced by plain ones, and without what the
prediction does not depend on. A step is a node of `torch.fx`; placeholders are the network's tensors,
by name, and its inputs.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from pluribus.errors import InputError, UnreadableError
from pluribus.mechanisms.graph.export import read_graph
from pluribus.mechanisms.graph.in_place import without_in_place, writes_into
from pluribus.mechanisms.graph.operation import Operation
from pluribus.mechanisms.graph.operators import SYM_SIZE, is_random
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import Output, select_output
from pluribus.mechanisms.network.torch_private import (
    is_free_size,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)

# The exported root holds the network under this name.
ROOT = "network."

SINGLE_SAMPLE = "Axis 0 of inputs is the batch: a single sample is x[None]."
"""The remedy for inputs without an axis of samples."""
Form = tuple[torch.dtype, tuple[int | None, ...]]
"""A tensor's dtype and its shape, None where any size will do."""


@dataclass(frozen=True, eq=False)
class Signature:
    """The inputs and outputs of the steps of a network.

    Attributes:
        example: The inputs with which the network was read, in words.
        structure: The tree of the inputs, in words.
        forms: The form of every input, flat, or its value where it is no tensor.
        returned: The tree of the results; None where the first of them is the prediction.
        output: What of them is the prediction.
    """

    example: str
    structure: str
    forms: tuple[Any, ...]
    returned: Any
    output: Output

    def why_not(self, inputs: Inputs) -> str:
        """Return why these inputs are of another kind than those of the example; empty where they are not."""
        leaves, structure = tree_flatten((inputs.args, inputs.keywords))
        if str(structure) == self.structure and all(map(has_form, leaves, self.forms)):
            return ""
        return f"it was read with {self.example}, got {inputs}"

    def lacks_batch(self, inputs: Inputs) -> bool:
        """Return whether these inputs would be of the example's kind as a batch of one sample."""
        return not self.why_not(inputs.each(lambda tensor: tensor[None]))

    def flatten(self, inputs: Inputs) -> list[Any]:
        """Return the values of all inputs in one list.

        Raises:
            InputError: They are of another kind than those of the example.
        """
        if self.why_not(inputs):
            remedy = SINGLE_SAMPLE if self.lacks_batch(inputs) else "Pass an example of that kind to convert."
            raise InputError(
                f"expected inputs of the kind the network was read with, {self.example}, got {inputs}. "
                f"{remedy}"
            )
        return tree_leaves((inputs.args, inputs.keywords))

    def cast(self, change: Callable[[Tensor], Tensor]) -> "Signature":
        """Return the same for inputs of another precision.

        Args:
            change: What a network that was cast does to its tensors, such as `Tensor.half`.
        """
        example, forms = self.example, list(self.forms)
        for place, form in enumerate(forms):
            if isinstance(form, tuple):
                old, sizes = form
                new = change(torch.empty(0, dtype=old)).dtype
                forms[place] = (new, sizes)
                example = example.replace(_name(old), _name(new))
        return replace(self, example=example, forms=tuple(forms))

    def predict(self, values: Sequence[Any]) -> Tensor:
        """Return the prediction among the results.

        Args:
            values: The results of a program, in their order.
        """
        if self.returned is None:
            return values[0]  # type: ignore[no-any-return]
        return select_output(tree_unflatten(list(values), self.returned), self.output)


@dataclass(frozen=True, eq=False)
class Program:
    """The steps of a network.

    Attributes:
        graph_module: All steps; holds what `get_attr` nodes read.
        held: By placeholder, the first name of the parameter or buffer it stands for.
        constants: By placeholder, the value of a tensor that the code made.
        parameters: Those of the placeholders that stand for parameters.
        entries: The placeholders of the inputs, in the order of `Signature.flatten`.
        results: The nodes, or plain values, that the prediction is made of.
        writes: The names of the buffers that the network writes into, which the steps do not.
        signature: Of inputs and results.
    """

    graph_module: GraphModule
    held: Mapping[Node, str]
    constants: Mapping[Node, Tensor]
    parameters: frozenset[Node]
    entries: tuple[Node, ...]
    results: tuple[Any, ...]
    writes: tuple[str, ...]
    signature: Signature

    @property
    def prediction(self) -> Node | None:
        """Return the node of the prediction; None where a function computes it from all results."""
        return self.results[0] if self.signature.returned is None else None

    @cached_property
    def steps(self) -> tuple[Node, ...]:
        """Return the operators that the prediction depends on, in order, and what they read of the module."""
        needed = set(self.reads(self.results))
        chosen = []
        for node in reversed(self.graph_module.graph.nodes):
            if node in needed and node.op in ("call_function", "get_attr"):
                needed.update(node.all_input_nodes)
                chosen.append(node)
        return tuple(reversed(chosen))

    def reads(self, arguments: Any) -> list[Node]:
        """Return the nodes among some arguments."""
        return [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Node)]

    def depends_on(self, names: Sequence[str]) -> set[Node]:
        """Return the steps that some of the network's tensors reach, and their placeholders.

        Args:
            names: First names of parameters and buffers.
        """
        chosen = set(names)
        reached = {node for node, name in self.held.items() if name in chosen}
        for node in self.steps:
            if not reached.isdisjoint(node.all_input_nodes):
                reached.add(node)
        return reached

    @cached_property
    def from_inputs(self) -> set[Node]:
        """Return the inputs, and the steps whose numbers follow from theirs."""
        reached = set(self.entries)
        for node in self.steps:
            # A size of an input is the same for all samples, and no number of that kind.
            if node.target is SYM_SIZE:
                continue
            if not reached.isdisjoint(node.all_input_nodes):
                reached.add(node)
        return reached

    @cached_property
    def calls(self) -> tuple[Node, ...]:
        """Return the steps where parameters, or what is computed from them alone, meet the inputs."""
        weights = set(self.parameters)
        found = []
        for node in self.steps:
            if weights.isdisjoint(node.all_input_nodes):
                continue
            if node in self.from_inputs:
                found.append(node)
            else:
                # A weight that is computed, such as a normed one, is a weight.
                weights.add(node)
        return tuple(found)

    def is_random(self, node: Node) -> bool:
        """Return whether a step draws random numbers, itself or in a graph of its own.

        Such a step must run once for each member, even where all of them read the same.
        """
        nodes = [node]
        for one in node.all_input_nodes:
            # A region under `torch.no_grad` is a graph that the step reads and runs.
            part = self.step(one, {}) if one.op == "get_attr" else None
            if isinstance(part, GraphModule):
                nodes += part.graph.nodes
        return any(_draws(one) for one in nodes)

    def step(self, node: Node, values: Mapping[Node, Any]) -> Any:
        """Return what one step computes from the values of others.

        Args:
            node: The step.
            values: By node, the values of the steps that it reads.
        """
        if node.op == "get_attr":
            return _attribute(self.graph_module, str(node.target))
        arguments, named = map_arg((node.args, node.kwargs), values.__getitem__)
        return node.target(*arguments, **named)  # type: ignore[operator]


def read_program(network: Network) -> Program:
    """Return the steps of a network in eval mode.

    Raises:
        UnreadableError: The network cannot be exported.
    """
    exported, output = _exported(network)
    module = without_in_place(exported.graph_module)
    if any(writes_into(node) for node in module.graph.nodes):
        exported = _without_writes(exported)
        module = exported.graph_module
    lifted = exported.graph_signature
    held, constants, entries = _placeholders(network, exported, module)
    returned = _returned(exported, module)
    prediction = _prediction(exported, returned, output)
    leaves, structure = tree_flatten((network.example.args, network.example.keywords))
    signature = Signature(
        str(network.example),
        str(structure),
        tuple(map(_form, leaves, entries)),
        None if prediction is not None else exported.call_spec.out_spec,
        output,
    )
    results = tuple(returned) if prediction is None else (prediction,)
    parameters = frozenset(node for node in held if node.name in lifted.inputs_to_parameters)
    writes = tuple(name.removeprefix(ROOT) for name in lifted.buffers_to_mutate.values())
    return Program(module, held, constants, parameters, tuple(entries), results, writes, signature)


def _exported(network: Network) -> tuple[ExportedProgram, Output]:
    """Return a network in eval mode as torch.export reads it, and what of its results is the prediction.

    Where a function computes the prediction, it is read together with the network, so that the graph has its
    steps; a function that cannot be read is called on the results.

    Raises:
        UnreadableError: The network cannot be exported.
    """
    exported = network.graph(training=False).program
    returned = _returned(exported, exported.graph_module)
    if _prediction(exported, returned, network.output) is not None:
        return exported, network.output
    pick = partial(select_output, output=network.output)
    try:
        whole = read_graph(network.module, network.example, training=False, pick=pick)
    except (UnreadableError, InputError):
        return exported, network.output
    return whole.program, None


def _without_writes(exported: ExportedProgram) -> ExportedProgram:
    """Return the program with in-place operators replaced by plain ones.

    Steps without side effects may be run in any order, once for several members, or not at all.
    """
    with warnings.catch_warnings():
        # torch warns of what torch itself does (2.13).
        warnings.simplefilter("ignore", FutureWarning)
        # An empty table of decompositions replaces in-place operators, and no others.
        plain: ExportedProgram = exported.run_decompositions({})
    return plain


def _placeholders(
    network: Network, exported: ExportedProgram, module: GraphModule
) -> tuple[dict[Node, str], dict[Node, Tensor], list[Node]]:
    """Return what the placeholders of a graph stand for.

    Returns:
        By placeholder, the first name of the network's tensor; by placeholder, the value of a tensor that
        the code made; and the placeholders of the inputs, in their order.
    """
    lifted = exported.graph_signature
    parameters = dict(network.module.named_parameters(remove_duplicate=False))
    every = {**parameters, **dict(network.module.named_buffers(remove_duplicate=False))}
    # A tied tensor has several names, of which the first one counts.
    firsts = {id(tensor): name for name, tensor in network.tensors().items()}
    names = {**lifted.inputs_to_parameters, **lifted.inputs_to_buffers}
    held, constants, entries = dict[Node, str](), dict[Node, Tensor](), list[Node]()
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        name = names.get(node.name, "").removeprefix(ROOT)
        if name:
            held[node] = firsts[id(every[name])]
        elif node.name in lifted.inputs_to_lifted_tensor_constants:
            constant = lifted.inputs_to_lifted_tensor_constants[node.name]
            constants[node] = exported.constants[constant]
        else:
            entries.append(node)
    return held, constants, entries


def _name(dtype: torch.dtype) -> str:
    """Return a precision as the description of inputs begins with it: `float32[`."""
    return f"{str(dtype).removeprefix('torch.')}["


def _form(value: Any, entry: Node) -> Any:
    """Return the form of an input, or the input itself where it is no tensor.

    Args:
        value: The input of the example.
        entry: Its placeholder, which knows the sizes that are free.
    """
    if not isinstance(value, Tensor):
        return value
    sizes = entry.meta["val"].shape
    return value.dtype, tuple(None if is_free_size(size) else int(size) for size in sizes)


def has_form(value: Any, form: Any) -> bool:
    """Return whether an input may take the place of the one with this form.

    The exported graph has the example's plain values, precisions and sizes built in, free sizes excepted.
    """
    if not isinstance(value, Tensor):
        return type(value) is type(form) and bool(value == form)
    if not isinstance(form, tuple):
        return False
    dtype, sizes = form
    # A sparse tensor has the same sizes, and operators of another kind.
    if value.dtype != dtype or value.ndim != len(sizes) or value.layout is not torch.strided:
        return False
    return all(size in (None, came) for size, came in zip(sizes, value.shape, strict=True))


def _attribute(module: GraphModule, name: str) -> Any:
    """Return what a dotted name leads to."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _draws(node: Node) -> bool:
    """Return whether an operator draws random numbers; dropout that is off has the tag and draws none."""
    if not is_random(node.target):
        return False
    operation = Operation(node, "", "", "")
    # An operator has some of these arguments at most; one that it lacks does not switch it off.
    modes = [operation.argument(name, True) for name in ("train", "training")]
    rates = [operation.argument(name, 1.0) for name in ("p", "dropout_p", "dropout")]
    return all(modes) and all(rates)


def _returned(exported: ExportedProgram, module: GraphModule) -> list[Any]:
    """Return the network's results, flat, as nodes or plain values; new values of buffers left out."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    kinds = [spec.kind.name for spec in exported.graph_signature.output_specs]
    return [value for value, kind in zip(output.args[0], kinds, strict=True) if kind == "USER_OUTPUT"]


def _prediction(exported: ExportedProgram, returned: Sequence[Any], output: Output) -> Node | None:
    """Return the node of the prediction; None where a function computes it from the results."""
    # Marks go through the user's choice of an output in place of the results.
    marks = [torch.empty(0) if isinstance(value, Node) else value for value in returned]
    try:
        prediction = select_output(tree_unflatten(marks, exported.call_spec.out_spec), output)
    # A user's function may want real values, and raise anything for others.
    except Exception:
        return None
    for mark, value in zip(marks, returned, strict=True):
        if mark is prediction:
            return value  # type: ignore[no-any-return]
    return None
