"""Residual blocks: the convolutions with which the longer branch of a sum begins.

A block is a sum of two branches that leave one value. The branch with more convolutions transforms; the
other one, the shortcut, passes the value on, at most through one convolution.
"""

from collections.abc import Mapping, Sequence

from torch.fx import Node

from pluribus.mechanisms.graph.operators import CONVOLUTIONS, operator_name
from pluribus.mechanisms.graph.program import Program, read_program
from pluribus.mechanisms.network.network import Network


def find_first_in_blocks(network: Network) -> set[str]:
    """Return the names of the weights of the convolutions that come first in a residual block.

    Raises:
        UnreadableError: The network cannot be exported.
    """
    program = read_program(network)
    places = {node: place for place, node in enumerate(program.steps)}
    before = _ancestors(program)
    found: set[str] = set()
    for node in program.steps:
        if operator_name(node) not in ("add", "add_"):
            continue
        branches = [one for one in node.all_input_nodes if one in program.from_inputs]
        if len(branches) == 2:
            found |= _first_of_block(program, branches, before, places)
    return found


def _ancestors(program: Program) -> dict[Node, frozenset[Node]]:
    """Return, for each step and input, itself and all steps and inputs that it depends on."""
    before = {node: frozenset({node}) for node in program.entries}
    for node in program.steps:
        reads = [before[one] for one in node.all_input_nodes if one in before]
        before[node] = frozenset({node}).union(*reads)
    return before


def _first_of_block(
    program: Program,
    branches: Sequence[Node],
    before: Mapping[Node, frozenset[Node]],
    places: Mapping[Node, int],
) -> set[str]:
    """Return the weight of the first convolution of the longer branch, or nothing where there is no block."""
    one, other = (before[branch] for branch in branches)
    if not one & other:
        return set()
    # An input comes before all steps.
    fork = max(one & other, key=lambda node: places.get(node, -1))
    own = [_convolutions(before[branch] - before[fork], places) for branch in branches]
    shorter, longer = sorted(own, key=len)
    if len(shorter) == len(longer) or len(shorter) > 1:
        return set()
    weight = longer[0].args[1]
    return {program.held[weight]} if weight in program.held else set()  # type: ignore[index]


def _convolutions(nodes: frozenset[Node], places: Mapping[Node, int]) -> list[Node]:
    """Return the convolutions among some steps, in the order in which they run."""
    found = [node for node in nodes if operator_name(node) in CONVOLUTIONS]
    return sorted(found, key=places.__getitem__)
