"""Program: a network's data flow as steps that change nothing but what they return.

Read from the graph of eval mode, with in-place operators replaced by plain ones, and without what the
prediction does not depend on. A step is a node of `torch.fx`; placeholders are the network's tensors,
by name, and its inputs.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from pluribus.errors import InputError
from pluribus.mechanisms.graph.export import Operation
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import Output, select_output

Form = tuple[torch.dtype, tuple[int | None, ...]]
"""A tensor's dtype and its shape, None where any size will do."""


@dataclass(frozen=True, eq=False)
class Signature:
    """What goes into the steps of a network, and what comes out.

    Attributes:
        example: The inputs with which the network was read, in words.
        structure: How inputs hang together, in words.
        forms: Of every input, flat, its form, or its value where it is no tensor.
        returned: How the results hang together; None where the first of them is the prediction.
        output: What of them is the prediction.
    """

    example: str
    structure: str
    forms: tuple[Any, ...]
    returned: Any
    output: Output

    def why_not(self, inputs: Inputs) -> str:
        """Why these inputs are of another kind than those of the example; empty where they are not."""
        leaves, structure = pytree.tree_flatten((inputs.args, inputs.keywords))
        if str(structure) == self.structure and all(map(_has_form, leaves, self.forms)):
            return ""
        return f"it was read with {self.example}, and {inputs} came"

    def flatten(self, inputs: Inputs) -> list[Any]:
        """The values of all inputs in one list; refuses inputs of another kind than the example's."""
        if self.why_not(inputs):
            raise InputError(
                f"inputs must be of the kind the network was read with, {self.example}, however: {inputs}. "
                "Pass an example of that kind to convert."
            )
        return pytree.tree_leaves((inputs.args, inputs.keywords))

    def cast(self, change: Callable[[Tensor], Tensor]) -> "Signature":
        """The same with inputs of the precision that `change` gives a tensor of theirs."""
        example, forms = self.example, list(self.forms)
        for place, form in enumerate(forms):
            if isinstance(form, tuple):
                dtype = change(torch.empty(0, dtype=form[0])).dtype
                example, forms[place] = example.replace(_name(form[0]), _name(dtype)), (dtype, form[1])
        return replace(self, example=example, forms=tuple(forms))

    def predict(self, values: Sequence[Any]) -> Tensor:
        """The prediction among the results."""
        if self.returned is None:
            return values[0]  # type: ignore[no-any-return]
        return select_output(pytree.tree_unflatten(list(values), self.returned), self.output)


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
        """The node of the prediction; None where a function computes it from all results."""
        return self.results[0] if self.signature.returned is None else None

    @cached_property
    def steps(self) -> tuple[Node, ...]:
        """The operators that the prediction depends on, in order, and what they read of the module."""
        needed = set(self.reads(self.results))
        chosen = []
        for node in reversed(self.graph_module.graph.nodes):
            if node in needed and node.op in ("call_function", "get_attr"):
                needed.update(node.all_input_nodes)
                chosen.append(node)
        return tuple(reversed(chosen))

    def reads(self, arguments: Any) -> list[Node]:
        """The nodes among some arguments."""
        return [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Node)]

    def depends_on(self, names: Sequence[str]) -> set[Node]:
        """The steps that some of the network's tensors reach, and their placeholders."""
        chosen = set(names)
        reached = {node for node, name in self.held.items() if name in chosen}
        for node in self.steps:
            if not reached.isdisjoint(node.all_input_nodes):
                reached.add(node)
        return reached

    @cached_property
    def from_inputs(self) -> set[Node]:
        """The inputs, and the steps whose numbers follow from theirs; sizes are no numbers of that kind."""
        reached = set(self.entries)
        for node in self.steps:
            if node.target is not torch.ops.aten.sym_size.int and not reached.isdisjoint(
                node.all_input_nodes
            ):
                reached.add(node)
        return reached

    @cached_property
    def calls(self) -> tuple[Node, ...]:
        """The steps where parameters, or what is computed from them alone, meet numbers of the inputs."""
        weights = set(self.parameters)
        found = []
        for node in self.steps:
            if not weights.isdisjoint(node.all_input_nodes):
                if node in self.from_inputs:
                    found.append(node)
                else:
                    weights.add(node)
        return tuple(found)

    def is_random(self, node: Node) -> bool:
        """Whether a step draws random numbers, itself or in a graph of its own."""
        parts = [self.step(one, {}) for one in node.all_input_nodes if one.op == "get_attr"]
        inner = [one for part in parts if isinstance(part, GraphModule) for one in part.graph.nodes]
        return any(_draws(one) for one in (node, *inner))

    def step(self, node: Node, values: Mapping[Node, Any]) -> Any:
        """What one step computes from the values of others."""
        if node.op == "get_attr":
            return _attribute(self.graph_module, str(node.target))
        arguments, named = map_arg((node.args, node.kwargs), values.__getitem__)
        return node.target(*arguments, **named)  # type: ignore[operator]


def read_program(network: Network) -> Program:
    """The steps of a network in eval mode.

    Raises:
        UnreadableError: the network cannot be exported.
    """
    exported = network.graph(training=False).program
    if any(_writes(node) for node in exported.graph.nodes):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch warns of what torch does
            exported = exported.run_decompositions({})  # replaces in-place operators, and no others
    module, lifted = exported.graph_module, exported.graph_signature
    every = {
        **dict(network.module.named_parameters(remove_duplicate=False)),
        **dict(network.module.named_buffers(remove_duplicate=False)),
    }
    firsts = {id(tensor): name for name, tensor in network.tensors().items()}
    names = {**lifted.inputs_to_parameters, **lifted.inputs_to_buffers}
    held, constants, entries = {}, {}, []
    for node in module.graph.nodes:
        if node.op != "placeholder":
            continue
        name = names.get(node.name, "").removeprefix("network.")
        if name:
            held[node] = firsts[id(every[name])]
        elif node.name in lifted.inputs_to_lifted_tensor_constants:
            constants[node] = exported.constants[lifted.inputs_to_lifted_tensor_constants[node.name]]
        else:
            entries.append(node)
    returned = _returned(exported, module)
    prediction = _prediction(exported, returned, network.output)
    leaves, structure = pytree.tree_flatten((network.example.args, network.example.keywords))
    signature = Signature(
        str(network.example),
        str(structure),
        tuple(map(_form, leaves, entries)),
        None if prediction is not None else exported.call_spec.out_spec,
        network.output,
    )
    results = tuple(returned) if prediction is None else (prediction,)
    parameters = frozenset(node for node in held if node.name in lifted.inputs_to_parameters)
    writes = tuple(name.removeprefix("network.") for name in lifted.buffers_to_mutate.values())
    return Program(module, held, constants, parameters, tuple(entries), results, writes, signature)


def _name(dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')}["


def _form(value: Any, entry: Node) -> Any:
    if not isinstance(value, Tensor):
        return value
    sizes = entry.meta["val"].shape
    return value.dtype, tuple(None if _is_free(size) else int(size) for size in sizes)


def _has_form(value: Any, form: Any) -> bool:
    if not isinstance(value, Tensor):
        return type(value) is type(form) and bool(value == form)
    if not isinstance(form, tuple) or value.dtype != form[0] or value.ndim != len(form[1]):
        return False
    return all(size in (None, came) for size, came in zip(form[1], value.shape, strict=True))


def _is_free(size: Any) -> bool:
    """Whether a size may be another; one that the code counted is a symbol for a number."""
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None


def _attribute(module: GraphModule, name: str) -> Any:
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _draws(node: Node) -> bool:
    """Whether an operator draws random numbers; dropout that is off has the mark and draws none."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    operation = Operation(node, "", "", "")
    modes = [operation.argument(name, True) for name in ("train", "training")]
    rates = [operation.argument(name, 1.0) for name in ("p", "dropout_p", "dropout")]
    return all(modes) and all(rates)


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and schema is not None and bool(schema.is_mutable)


def _returned(exported: ExportedProgram, module: GraphModule) -> list[Any]:
    """What the network returns, flat, as nodes or plain values."""
    output = next(node for node in module.graph.nodes if node.op == "output")
    kinds = [spec.kind.name for spec in exported.graph_signature.output_specs]
    return [value for value, kind in zip(output.args[0], kinds, strict=True) if kind == "USER_OUTPUT"]


def _prediction(exported: ExportedProgram, returned: Sequence[Any], output: Output) -> Node | None:
    marks = [torch.empty(0) if isinstance(value, Node) else value for value in returned]
    try:
        prediction = select_output(pytree.tree_unflatten(marks, exported.call_spec.out_spec), output)
    except Exception:  # a user's function that wants real values
        return None
    return next((value for mark, value in zip(marks, returned, strict=True) if mark is prediction), None)
