"""Cut flow: the data flow of masked members that were cut out, where they differ by their tensors alone.

Members with masks of the same sizes have the same steps. As rows of one program they run together.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from pluribus.errors import ConversionError
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.running.lowering import Flow
from pluribus.mechanisms.running.specialised import CutMembers


def flow_of_cut(cut: CutMembers) -> Flow | None:
    """Return the data flow of members whose graphs differ by their tensors alone; None for others."""
    first, *others = cut.members
    shape = _shape(first)
    if any(_shape(other) != shape for other in others):
        return None
    shared, held = _tensors("trunk", cut.trunk), [_tensors("member", member) for member in cut.members]

    def of(rows: Sequence[int]) -> Iterator[dict[str, Tensor]]:
        for row in rows:
            yield shared | held[row]

    def keys(row: int) -> dict[str, Hashable]:
        return dict.fromkeys(held[0], row)

    return Flow(_program(cut, [*shared, *held[0]]), of, keys, range(len(cut.members)))


def _program(cut: CutMembers, names: Sequence[str]) -> Program:
    """Return the steps of the trunk and of one member, which read tensors of these names."""
    graph = Graph()
    entries = [graph.placeholder(node.name) for node in cut.trunk.graph.nodes if node.op == "placeholder"]
    held = {name: graph.placeholder(name.replace(".", "_")) for name in names}
    common = _inlined(graph, cut.trunk, entries, "trunk", held)
    results = tuple(_inlined(graph, cut.members[0], common, "member", held))
    graph.output(results)
    by_node = {node: name for name, node in held.items()}
    parameters = frozenset(held.values())
    module = GraphModule(nn.Module(), graph)
    return Program(module, by_node, {}, parameters, tuple(entries), results, (), cut.signature)


def _tensors(part: str, module: GraphModule) -> dict[str, Tensor]:
    """Return the tensors that a graph reads, with the name of the part in front of theirs."""
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {f"{part}.{name}": tensor for name, tensor in named.items()}


def _shape(module: GraphModule) -> list[tuple[Any, ...]]:
    """Return the steps of a graph with positions in place of nodes, and shapes in place of tensors."""
    places, found = dict[Node, int](), list[tuple[Any, ...]]()
    tensors = _tensors("member", module)
    for place, node in enumerate(module.graph.nodes):
        places[node] = place
        arguments = map_arg((node.args, node.kwargs), lambda one: f"step {places[one]}")
        held = tensors.get(f"member.{node.target}") if node.op == "get_attr" else None
        kind = None if held is None else (tuple(held.shape), held.dtype)
        # A graph of its own is compared by its name, and is the same module in all members.
        found.append((node.op, str(node.target), str(arguments), kind))
    return found


def _inlined(
    graph: Graph, module: GraphModule, inputs: Sequence[Node], part: str, tensors: Mapping[str, Node]
) -> list[Any]:
    """Add the steps of a module to a graph, and return its results.

    Raises:
        ConversionError: The module holds a graph of its own.
    """
    given, copies = iter(inputs), dict[Node, Any]()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            copies[node] = next(given)
        elif node.op == "get_attr":
            name = f"{part}.{node.target}"
            if name not in tensors:
                raise ConversionError(f"{node.target} is a graph of its own")
            copies[node] = tensors[name]
        elif node.op == "output":
            return list(map_arg(node.args[0], copies.__getitem__))
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    raise ConversionError("a member must have an output, got none.")
