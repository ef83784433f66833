"""Rewriting: a program with other steps and tensors, as the passes that run before a plan make it."""

from dataclasses import replace
from typing import Any

from torch.fx import Graph, GraphModule, Node

from pluribus.mechanisms.graph.program import Program


class Rewriting:
    """Change the steps of a program.

    Args:
        program: Stays as it is.

    Attributes:
        graph: A copy of its steps, to be changed.
        copies: By step or placeholder of the program, the node that stands for it now.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.graph, self.copies = program, Graph(), dict[Node, Node]()
        # The output node is not copied; the program knows its results itself.
        self.graph.graph_copy(program.graph_module.graph, self.copies)
        self._first = next(node for node in self.graph.nodes if node.op != "placeholder")
        self._held = {self.copies[node]: name for node, name in program.held.items()}
        self._entries, self._computed = dict[str, Node](), set[Node]()

    def entry(self, name: str, like: Any, parameter: bool = True) -> Node:
        """Return the placeholder of a new tensor of rows, made once for each name.

        Args:
            name: By which rows give the tensor.
            like: A value of its shape.
            parameter: Whether a step that reads it is a layer.
        """
        if name not in self._entries:
            with self.graph.inserting_before(self._first):
                found = self.graph.placeholder("computed")
            # Names of nodes differ, and names of arguments must.
            found.target = found.name
            found.meta["val"] = like
            self._entries[name], self._held[found] = found, name
            if parameter:
                self._computed.add(found)
        return self._entries[name]

    def replace(self, step: Node, node: Node) -> None:
        """Make the readers of a step's value read a node; the step itself is left out.

        Args:
            step: Of the program.
            node: Of the new graph.
        """
        before = self.copies[step]
        before.replace_all_uses_with(node)
        self.graph.erase_node(before)
        self.copies[step] = node

    def finish(self) -> Program:
        """Return the program with these changes, without tensors that nothing reads any more."""
        program, copies = self.program, self.copies
        results = [copies[one] if isinstance(one, Node) else one for one in program.results]
        held = {node: name for node, name in self._held.items() if node.users or node in results}
        parameters = {copies[node] for node in program.parameters} | self._computed
        return replace(
            program,
            graph_module=GraphModule(program.graph_module, self.graph),
            held=held,
            constants={copies[node]: value for node, value in program.constants.items()},
            parameters=frozenset(parameters & held.keys()),
            entries=tuple(copies[node] for node in program.entries),
            results=tuple(results),
        )
