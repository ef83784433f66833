"""Compact graphs: tensors that are larger than what they were computed from are computed in the graph.

A file of such a graph is small. Whoever reads it computes the tensors once (`graph_file.py`, onnxruntime) or
in every call.
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate

from pluribus.mechanisms.graph.operators import find_operator
from pluribus.mechanisms.graph.packing import fits_byte, packed_bytes
from pluribus.mechanisms.graph.recording import Recipe, recipe_of

aten: Any = torch.ops.aten

RECIPES = "recipes"
"""Where a graph keeps how its tensors were computed."""
ONCE = "once"
"""Marks nodes that need to be computed once, because they depend on no input."""
WORTH = 0.9
"""Share of the bytes below which a group of tensors is computed from others: a few per cent are not worth
the nodes."""


Stored = Mapping[str, tuple[Tensor, Tensor]]
"""By name, a tensor as it was computed under a `Recording`, and the copy that a graph holds."""


@torch.no_grad()
def worthwhile_recipes(stored: Stored) -> dict[str, Recipe]:
    """Return how some tensors of a graph can be computed from fewer bytes, by their names.

    Tensors with a common leaf are computed all or none, since the leaf is paid for once. A leaf that the
    graph holds anyway costs nothing, as the table of words that is also the last layer. Other leaves are
    copied.

    Args:
        stored: All tensors of the graph.
    """
    recipes, held = dict[str, Recipe](), dict[int, tuple[Tensor, Tensor]]()
    for name, (tensor, copy) in stored.items():
        found = recipe_of(tensor)
        if found is not None:
            recipes[name] = found
        else:
            held[id(tensor)] = (tensor, copy)
    copies = _Copies(held)
    chosen = dict[str, Recipe]()
    for names, leaves in _groups(recipes, held.keys()):
        before = sum(packed_bytes(stored[name][1]) for name in names)
        after = sum(map(packed_bytes, leaves))
        if after > WORTH * before:
            continue
        own = {name: copies.recipe(recipes[name]) for name in names}
        if _computes(own, stored):
            chosen |= own
    return chosen


class _Copies:
    """Recipes whose leaves are copies, so that a graph shares no memory with the ensemble.

    Args:
        held: By identity, leaves that the graph holds, and its copies of them.
    """

    def __init__(self, held: Mapping[int, tuple[Tensor, Tensor]]) -> None:
        # With the leaves themselves, whose identities must not be given away meanwhile.
        self._leaves = dict(held)
        self._recipes: dict[int, Any] = {}

    def recipe(self, recipe: Recipe) -> Recipe:
        """Return the same recipe of copied leaves; recipes with common parts have them in common again.

        Args:
            recipe: Not changed.
        """
        return recipe.with_leaves(self._copied, self._recipes)

    def _copied(self, leaf: Tensor) -> Tensor:
        """Return the copy of a leaf, which is made once.

        Args:
            leaf: Of any recipe.
        """
        if id(leaf) not in self._leaves:
            self._leaves[id(leaf)] = (leaf, leaf.detach().clone())
        return self._leaves[id(leaf)][1]


def _computes(recipes: Mapping[str, Recipe], stored: Stored) -> bool:
    """Return whether recipes compute what a graph holds, bit for bit and in the same order of memory.

    An operator that wrote into a tensor, which no recipe knows of, is noticed here.

    Args:
        recipes: By name, how tensors are computed.
        stored: The tensors.
    """
    known = dict[int, Any]()
    for name, recipe in recipes.items():
        made, expected = recipe.value(known).clone(), stored[name][1]
        if made.dtype != expected.dtype or made.stride() != expected.stride():
            return False
        if not torch.equal(made, expected):
            return False
    return True


def _groups(recipes: Mapping[str, Recipe], held: Container[int]) -> list[tuple[list[str], list[Tensor]]]:
    """Return the names of tensors that have leaves in common, with all of their leaves that cost something.

    Args:
        recipes: By name, how tensors are computed.
        held: The identities of the leaves that cost nothing.
    """
    # By leaf, the group that it belongs to; and those without a leaf that costs something.
    groups, free = dict[int, _Group](), list[_Group]()
    for name, recipe in recipes.items():
        group = _Group([name], {})
        for leaf in recipe.leaves():
            if id(leaf) in held:
                continue
            other = groups.get(id(leaf), group)
            # A recipe with leaves of several groups makes one of them.
            if other is not group:
                group = _Group(other.names + group.names, other.leaves | group.leaves)
            group.leaves[id(leaf)] = leaf
            groups |= dict.fromkeys(group.leaves, group)
        if not group.leaves:
            free.append(group)
    distinct = {id(group): group for group in (*groups.values(), *free)}
    return [(group.names, list(group.leaves.values())) for group in distinct.values()]


@dataclass(eq=False)
class _Group:
    """Tensors with leaves in common.

    Attributes:
        names: Of the tensors.
        leaves: By identity, all of their leaves.
    """

    names: list[str]
    leaves: dict[int, Tensor]


def compact(module: GraphModule) -> GraphModule:
    """Return a graph that computes large tensors from what they are made of; the same one if there are none.

    Args:
        module: A graph of `GraphBuilder`; not changed.
    """
    recipes: dict[str, Recipe] = module.meta.get(RECIPES, {})
    if not recipes:
        return module
    writer = _Writer(module)
    values = dict[Node, Node]()
    for node in module.graph.nodes:
        name = str(node.target)
        if node.op == "get_attr" and name in recipes:
            values[node] = writer.write(recipes[name])
            values[node].meta["parameter"] = isinstance(getattr(module, name), nn.Parameter)
        elif node.op == "get_attr":
            values[node] = writer.read(getattr(module, name), name)
        else:
            values[node] = writer.graph.node_copy(node, values.__getitem__)
    return GraphModule(writer.root, writer.graph).eval()


class _Writer:
    """Write recipes into a new graph, every part once.

    Args:
        module: The graph whose tensors are computed.
    """

    def __init__(self, module: GraphModule) -> None:
        self.graph, self.root = Graph(), nn.Module()
        row = getattr(module, "row", None)
        if row is not None:
            self.root.add_module("row", row)
        self._written: dict[int, Node] = {}
        # By identity, the names of what is read as it is.
        self._held = {
            id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())
        }

    def read(self, tensor: Tensor, name: str) -> Node:
        """Return the node that reads a tensor, which is added to the module.

        Args:
            tensor: A parameter or a buffer.
            name: Of the tensor in the module.
        """
        if isinstance(tensor, nn.Parameter):
            self.root.register_parameter(name, tensor)
        else:
            self.root.register_buffer(name, tensor)
        return self.graph.get_attr(name)

    def write(self, part: Recipe | Tensor) -> Node:
        """Return the node of a recipe, or of one of its leaves, added once.

        Args:
            part: The recipe or the leaf.
        """
        if id(part) not in self._written:
            made = self._leaf(part) if isinstance(part, Tensor) else self._call(part)
            self._written[id(part)] = made
        return self._written[id(part)]

    def _call(self, recipe: Recipe) -> Node:
        """Return the node of a recipe.

        Args:
            recipe: How a tensor is computed.
        """

        def written(part: Any) -> Any:
            return self.write(part) if isinstance(part, Recipe | Tensor) else part

        args, kwargs = map_aggregate((recipe.args, recipe.kwargs), written)
        return self._once(find_operator(recipe.operator), args, dict(kwargs))

    def _leaf(self, leaf: Tensor) -> Node:
        """Return the node of a leaf.

        Args:
            leaf: What other tensors are made of.
        """
        if id(leaf) in self._held:
            return self.read(leaf, self._held[id(leaf)])
        name = f"part_{len(self._written)}"
        if not fits_byte(leaf) or leaf.dtype is torch.bool:
            return self.read(leaf, name)
        # Choices between a few options take eight bytes each, of which one says everything.
        return self._once(aten._to_copy.default, (self.read(leaf.byte(), name),), {"dtype": leaf.dtype})

    def _once(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        """Return the node of an operator on tensors that are there from the start.

        Args:
            target: The operator.
            args: Its arguments.
            kwargs: Its arguments by name.
        """
        node = self.graph.call_function(target, args, kwargs)
        node.meta[ONCE] = True
        return node
