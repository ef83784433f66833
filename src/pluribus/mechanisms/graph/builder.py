"""Graph builder: one `torch.fx` graph under construction, in which every tensor is stored once.

Operators on constants alone run while the graph is built; only what depends on the inputs becomes a node.
"""

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from pluribus.errors import UnreadableError
from pluribus.mechanisms.graph.compact import RECIPES, worthwhile_recipes
from pluribus.mechanisms.graph.in_place import may_share_memory
from pluribus.mechanisms.graph.picklable import PicklableGraph
from pluribus.mechanisms.graph.recording import Recording
from pluribus.mechanisms.graph.unread import erase_unread
from pluribus.mechanisms.network.torch_private import is_no_grad_region

aten: Any = torch.ops.aten

GROWTH = 4
"""How many times larger than its arguments a constant may be: larger ones, as an expanded table, are
computed in every run."""

# The operators of a graph without side effects that return their first argument.
_IDENTITIES = frozenset(
    (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default, aten.detach_.default)
)
# Products with a number, of which several in a row are one.
_PRODUCTS = frozenset((aten.mul.Tensor, aten.div.Tensor))
# They are written once, however many steps read them: views, and values that several products join.
_ONCE = frozenset(
    (
        aten.select.int,
        aten.slice.Tensor,
        aten.unsqueeze.default,
        aten.flatten.using_ints,
        aten.expand.default,
        aten.stack.default,
    )
)


class GraphBuilder:
    """Build one graph.

    A value is a node of the graph, a constant tensor, or a plain Python value.

    Args:
        own: Whether nobody else holds the tensors that it is given, so that they need no copies.
    """

    def __init__(self, own: bool = False) -> None:
        self.own = own
        self.graph, self.root = Graph(), nn.Module()
        # Tensors are known by their memory, which must not be freed and used again meanwhile.
        self._stored: dict[tuple[Any, ...], tuple[Tensor, Node]] = {}
        self._known: dict[tuple[Any, ...], Node] = {}
        self._weights: dict[int, Tensor] = {}
        # By node, the value and the constant of which it is the product.
        self._scaled: dict[Node, tuple[Node, Tensor]] = {}
        # Active while constants are computed.
        self.recording = Recording()  # type: ignore[no-untyped-call]

    def mark_weights(self, tensors: Iterable[Tensor]) -> None:
        """Store these tensors, and what is computed from them, as parameters; all others are buffers.

        Args:
            tensors: Constants that were parameters of the network.
        """
        self._weights |= {id(tensor): tensor for tensor in tensors}

    def input(self, name: str) -> Node:
        """Add an input.

        Args:
            name: Of the argument of the module's `forward`.
        """
        return self.graph.placeholder(name)

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the value of an operator: computed at once for constants, else a node.

        Args:
            target: The operator.
            args: Its arguments, values of this graph or lists of them.
            kwargs: Its arguments by name.

        Raises:
            UnreadableError: The operator runs a graph of its own.
        """
        if is_no_grad_region(target):
            # Nothing that is frozen has gradients, so the region is like any other code.
            return self.run(args[1], args[2:])
        if _returns_first(target, args, kwargs):
            return args[0]
        # Several values that an operator returned are there one by one.
        if target is operator.getitem and isinstance(args[0], list | tuple):
            return args[0][args[1]]
        leaves = list[Any]()
        map_aggregate((tuple(args), kwargs), leaves.append)
        kinds = {type(leaf) for leaf in leaves}
        if any(issubclass(kind, nn.Module) for kind in kinds):
            raise UnreadableError(f"{target} runs a graph of its own, which cannot be unrolled.")
        if Node in kinds:
            return self._product(target, args, kwargs) or self._node(target, args, kwargs)
        return self._constant(target, args, kwargs)

    def _product(self, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Node | None:
        """Return a product with a constant, to which a number that follows, as the rate of dropout, is added.

        One pass over the values is saved, because `x * mask / 0.9` becomes `x * (mask / 0.9)`.

        Args:
            target: The operator.
            args: Its arguments, at least one of them a node.
            kwargs: Its arguments by name.

        Returns:
            The node; None where the operator is none of these.
        """
        if target not in _PRODUCTS or len(args) != 2 or kwargs:
            return None
        value, factor = args
        if target is aten.mul.Tensor and isinstance(factor, Tensor) and factor.is_floating_point():
            node = self._node(target, args, {})
            self._scaled[node] = (value, factor)
            return node
        if isinstance(factor, float) and value in self._scaled:
            before, constant = self._scaled[value]
            return self.call(aten.mul.Tensor, before, self.call(target, constant, factor))  # type: ignore[no-any-return]
        return None

    def _constant(self, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the value of an operator on constants; a node where it is too large to be stored.

        Args:
            target: The operator.
            args: Its arguments, without nodes.
            kwargs: Its arguments by name, without nodes.
        """
        with torch.no_grad(), self.recording:
            found = target(*args, **kwargs)
        tensors = list[Tensor]()
        map_aggregate(
            (tuple(args), kwargs), lambda leaf: tensors.append(leaf) if isinstance(leaf, Tensor) else None
        )
        if not isinstance(found, Tensor) or not tensors:
            return found
        if found.nbytes > GROWTH * sum(tensor.nbytes for tensor in tensors):
            return self._node(target, args, kwargs)
        if any(id(tensor) in self._weights for tensor in tensors):
            self.mark_weights([found])
        return found

    def run(self, module: GraphModule, inputs: Sequence[Any]) -> Any:
        """Add all steps of a graph, and return its output.

        Args:
            module: Holds the graph and what its `get_attr` nodes read.
            inputs: One value for each of its placeholders.
        """
        given, values = iter(inputs), dict[Node, Any]()
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = attribute(module, str(node.target))
            elif node.op == "output":
                return _mapped(node.args[0], values)
            else:
                args, kwargs = _mapped(node.args, values), _mapped(dict(node.kwargs), values)
                values[node] = self.call(node.target, *args, **kwargs)
        raise UnreadableError("a graph must have an output, got none.")

    def module_of(self, module: GraphModule, inputs: Sequence[Any]) -> Node:
        """Add the call of a graph as a whole, which is stored once however often it is called.

        Args:
            module: The graph; there can be one.
            inputs: One value for each of its placeholders.
        """
        if not hasattr(self.root, "row"):
            self.root.add_module("row", module)
        given = tuple(self._argument(value) for value in inputs)
        return self.graph.call_module("row", given)

    def finish(self, output: Any) -> GraphModule:
        """Return the module that computes a value from the inputs, in eval mode.

        Args:
            output: A value of this graph.
        """
        result = self._argument(output)
        if may_share_memory(result):
            # Whoever writes into a result must change neither the inputs nor what the module holds.
            result = self.graph.call_function(aten.clone.default, (result,))
        self.graph.output(result)
        # Before the module is made, so that it gets no tensor that nothing reads.
        erase_unread(self.graph)
        module = PicklableGraph(self.root, self.graph)
        held = dict(module.named_parameters()) | dict(module.named_buffers())
        stored = {str(node.target): tensor for tensor, node in self._stored.values()}
        computed = {name: (tensor, held[name]) for name, tensor in stored.items() if name in held}
        module.meta[RECIPES] = worthwhile_recipes(computed)
        # Nothing in the graph depends on the mode.
        return module.eval()

    def _node(self, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Node:
        """Add a node; tensors among its arguments become tensors of the module.

        Args:
            target: The operator.
            args: Its arguments.
            kwargs: Its arguments by name.
        """
        given = map_aggregate((tuple(args), kwargs), self._argument)
        if target not in _ONCE:
            return self.graph.call_function(target, *given)
        key = (target, str(given))
        if key not in self._known:
            self._known[key] = self.graph.call_function(target, *given)
        return self._known[key]

    def _argument(self, value: Any) -> Any:
        return self._hold(value) if isinstance(value, Tensor) else value

    def _hold(self, tensor: Tensor) -> Node:
        """Return the node that reads a tensor, which is stored once.

        Args:
            tensor: A constant.
        """
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key not in self._stored:
            name = f"tensor_{len(self._stored)}"
            stored = tensor.detach()
            # What is frozen shares no memory with the ensemble, which may be trained on, and a view would
            # keep all of the tensor in which it lies.
            if not (self.own and stored.untyped_storage().nbytes() == stored.nbytes):
                stored = stored.clone()
            if id(tensor) in self._weights and tensor.is_floating_point():
                self.root.register_parameter(name, nn.Parameter(stored, requires_grad=False))
            else:
                self.root.register_buffer(name, stored)
            self._stored[key] = (tensor, self.graph.get_attr(name))
        return self._stored[key][1]


def attribute(module: nn.Module, name: str) -> Any:
    """Return what a dotted name leads to."""
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _mapped(arguments: Any, values: dict[Node, Any]) -> Any:
    return map_aggregate(arguments, lambda one: values[one] if isinstance(one, Node) else one)


def _returns_first(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether an operator returns its first argument: copies, and dropout in eval mode.

    Args:
        target: The operator.
        args: Its arguments.
        kwargs: Its arguments by name.
    """
    if target in _IDENTITIES:
        return True
    # A clone that keeps the order of memory has nobody who writes into it.
    if target is aten.clone.default:
        return len(args) == 1 and not kwargs
    return target is aten.dropout.default and not (args[2] if len(args) > 2 else kwargs.get("train"))
