"""ExecutionPlan: rows run together, and what they have in common is computed once.

Every value of a network depends on the choices *upstream of it in the data flow* and on no others. Rows
that agree on these take the same *version* of the value. A plan numbers the versions of all values, computes
each once and frees it after its last use. For a chain of layers this is Algorithm 1 of Oleksienko &
Iosifidis, "Layer Ensembles", IEEE MLSP 2023; branches, residuals and concatenations need nothing more.

Rows are sorted by their choices in the order of the data flow and run in blocks. A block of one row is the
paper's depth-first order, with at most one live value per layer. In larger blocks the versions of a value
are computed together (`stacking.py`), which is faster and needs more memory.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

from pluribus.mechanisms.graph.operators import SYM_SIZE
from pluribus.mechanisms.graph.program import Program
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.executor import EAGER, Executor, Piece, aten
from pluribus.mechanisms.running.stacking import compute

Bind = Callable[[Sequence[int]], Iterator[Mapping[str, Tensor]]]
"""Callback (positions of rows) -> the complete tensors of each row, one after the other."""


@dataclass
class Run:
    """One step, for some versions of its value.

    Attributes:
        node: The step.
        versions: The versions that are computed.
        reads: By argument, the version that each of them is computed from.
        last: The values, with their versions, that nothing reads afterwards.
    """

    node: Node
    versions: list[int]
    reads: dict[Node, list[int]]
    last: list[tuple[Node, int]] = field(default_factory=list)


@dataclass
class Block:
    """Rows that run together.

    Attributes:
        rows: Their positions.
        bound: Rows whose tensors are needed for the first time.
        runs: The steps in order.
        last: The values, with their versions, that nothing reads after this block's predictions.
    """

    rows: list[int]
    bound: list[int]
    runs: list[Run]
    last: list[tuple[Node, int]] = field(default_factory=list)


class ExecutionPlan:
    """Run a list of rows, and compute each value that they share once.

    Args:
        program: The steps of the network.
        choices: The keys of every row by name of the tensor: rows with equal keys share it, and a tensor
            that is not named is the same for all.

    Attributes:
        versions: By value, the version that each row takes, numbered from 0.
        order: Positions of distinct rows, those that share most beside each other.
    """

    def __init__(self, program: Program, choices: Sequence[Mapping[str, Hashable]]) -> None:
        self.program = program
        self.versions = number_versions(program, choices)
        self._paths = self._find_paths(len(choices))
        # Equal rows are computed once, as the first of them.
        firsts = dict[tuple[int, ...], int]()
        for row, path in enumerate(self._paths):
            firsts.setdefault(path, row)
        self.order = [firsts[path] for path in sorted(firsts)]
        # Blocks depend on nothing but the size; a memory bound leads to a few sizes.
        self.blocks = lru_cache(maxsize=4)(self._blocks)

    def _find_paths(self, rows: int) -> list[tuple[int, ...]]:
        """Return the choices of each row in the order of the data flow.

        Sorted by these, rows that agree longest are neighbours.
        """
        forks = dict[Node, None]()
        for step in self.program.steps:
            for node in (*step.all_input_nodes, step):
                if self._forks(node):
                    forks[node] = None
        paths = list[tuple[int, ...]]()
        for row in range(rows):
            path = tuple(self.versions[node][row] for node in forks)
            paths.append(path)
        return paths

    def _forks(self, node: Node) -> bool:
        """Return whether rows differ here by themselves, and not because of values upstream."""
        if max(self.versions[node]) == 0:
            return False
        return node in self.program.held or self.program.is_random(node)

    def count(self, node: Node) -> int:
        """Return how many versions of a value there are."""
        return max(self.versions[node]) + 1

    @property
    def shares(self) -> bool:
        """Return whether a layer runs less often than there are rows."""
        return any(self.count(node) < len(self._paths) for node in self.program.calls)

    def run(self, bind: Bind, inputs: Inputs, size: int) -> Tensor:
        """Return the predictions of all rows in the order they were given, `[rows, batch, ...]`.

        Args:
            bind: Gives the tensors of rows.
            inputs: One batch.
            size: How many rows a block may have.
        """
        outputs: Tensor = self.execute(EAGER, bind, self.program.signature.flatten(inputs), size)
        return outputs

    def execute(self, executor: Executor, bind: Bind, leaves: Sequence[Any], size: int) -> Any:
        """Carry out all steps, each value once, and return the predictions of all rows.

        Args:
            executor: Carries out operators.
            bind: Gives the tensors of rows.
            leaves: The values of all inputs.
            size: How many rows a block may have.
        """
        program, blocks = self.program, self.blocks(size)
        values = self._first_values(leaves)
        # One call for all rows, so that whatever makes tensors may draw or stack them together.
        bound = [row for block in blocks for row in block.bound]
        tensors = bind(bound)
        outputs = list[Any]()
        for block in blocks:
            # Not strict: the iterator goes on with the rows of the next block.
            for row, held in zip(block.bound, tensors, strict=False):
                self._hold(values, row, held)
            for run in block.runs:
                apart = len(run.versions) == len(block.rows)
                pieces = compute(program, run.node, len(run.versions), run.reads, values, executor, apart)
                values[run.node].update(zip(run.versions, pieces, strict=True))
                # A name that is left over would keep memory that the plan frees.
                del pieces
                _forget(values, run.last)
            outputs.append(self._predictions(block.rows, values, executor))
            _forget(values, block.last)
        return self.in_order(outputs, executor)

    def _first_values(self, leaves: Sequence[Any]) -> dict[Any, dict[int, Piece]]:
        """Return the constants and the inputs, of which there is one version."""
        values: dict[Any, dict[int, Piece]] = defaultdict(dict)
        for node, value in self.program.constants.items():
            values[node][0] = Piece(value)
        for node, leaf in zip(self.program.entries, leaves, strict=True):
            values[node][0] = Piece(leaf)
        return values

    def _hold(self, values: Mapping[Any, dict[int, Piece]], row: int, tensors: Mapping[str, Tensor]) -> None:
        """Add the tensors of a row that no earlier row has brought.

        Args:
            values: Changed in place.
            row: The position of the row.
            tensors: All of its tensors.
        """
        for node, name in self.program.held.items():
            version = self.versions[node][row]
            values[node].setdefault(version, Piece(tensors[name]))

    def _predictions(
        self, rows: Sequence[int], values: Mapping[Node, Mapping[int, Piece]], executor: Executor
    ) -> Any:
        """Return the predictions of some rows, `[rows, batch, ...]`.

        Args:
            rows: Positions of the rows of a block.
            values: The values that are alive after the steps of the block.
            executor: Carries out operators.
        """
        node = self.program.prediction
        # A prediction that is a step of its own may lie on a stack already, and is not copied then.
        if node is not None:
            return executor.together([values[node][self.versions[node][row]] for row in rows])

        def predict(row: int) -> Tensor:
            held = map_arg(self.program.results, lambda node: values[node][self.versions[node][row]].value)
            return self.program.signature.predict(held)

        return torch.stack([predict(row) for row in rows])

    def in_order(self, outputs: list[Any], executor: Executor) -> Any:
        """Return the predictions of distinct rows for all rows, in the order in which they were given.

        Args:
            outputs: The predictions of each block, `[rows, batch, ...]`.
            executor: Carries out operators.
        """
        places = {self._paths[row]: place for place, row in enumerate(self.order)}
        order = [places[path] for path in self._paths]
        joined = outputs[0] if len(outputs) == 1 else executor.call(aten.cat.default, outputs)
        if order == list(range(len(places))):
            return joined
        return executor.call(aten.index_select.default, joined, 0, executor.constant(order, joined))

    def _blocks(self, size: int) -> list[Block]:
        """Return the steps of all blocks of at most `size` rows."""
        known: dict[Node, set[int]] = defaultdict(set)
        blocks = list[Block]()
        for rows in self.cut(size):
            bound = [row for row in rows if self._is_new(row, known)]
            runs = list[Run]()
            for node in self.program.steps:
                run = self._run_of(node, rows, known[node])
                if run is not None:
                    known[node].update(run.versions)
                    runs.append(run)
            blocks.append(Block(rows, bound, runs))
        self._mark_last(blocks)
        return blocks

    def _run_of(self, node: Node, rows: Sequence[int], known: set[int]) -> Run | None:
        """Return the run of a step for the versions that no earlier block has computed; None without any.

        Args:
            node: The step.
            rows: The rows of the block.
            known: The versions of earlier blocks.
        """
        # All rows with one version compute the same, so the first of them stands for all.
        firsts = dict[int, int]()
        for row in rows:
            firsts.setdefault(self.versions[node][row], row)
        new = sorted(firsts.keys() - known)
        if not new:
            return None
        reads = dict[Node, list[int]]()
        for argument in node.all_input_nodes:
            reads[argument] = [self.versions[argument][firsts[version]] for version in new]
        return Run(node, new, reads)

    def _is_new(self, row: int, known: dict[Node, set[int]]) -> bool:
        """Add the versions of a row's tensors to the known ones; return whether one was not among them."""
        new = False
        for node in self.program.held:
            new |= self.versions[node][row] not in known[node]
            known[node].add(self.versions[node][row])
        return new

    def cut(self, size: int) -> Iterator[list[int]]:
        """Yield the rows in blocks, cut where neighbours have least in common."""
        paths = [self._paths[row] for row in self.order]
        start = 0
        while start < len(paths):
            end = min(start + size, len(paths))
            # A cut between rows that share much computes their values twice. Blocks stay more than half full,
            # so that there are few of them; among equals the later cut wins.
            if end < len(paths):
                cuts = range(start + size // 2 + 1, end + 1)
                end = max(cuts, key=lambda cut: (-_shared(paths, cut), cut))
            yield self.order[start:end]
            start = end

    def _mark_last(self, blocks: list[Block]) -> None:
        """Store with each run and block the values that nothing reads afterwards."""
        seen: set[tuple[Node, int]] = set()

        def mark(reads: Iterable[tuple[Node, int]]) -> list[tuple[Node, int]]:
            new = [read for read in dict.fromkeys(reads) if read not in seen]
            seen.update(new)
            return new

        # From the end: the first read that is met is the last one that happens.
        results = self.program.reads(self.program.results)
        for block in reversed(blocks):
            block.last = mark((node, self.versions[node][row]) for node in results for row in block.rows)
            for run in reversed(block.runs):
                reads = list[tuple[Node, int]]()
                for node, versions in run.reads.items():
                    reads += [(node, version) for version in versions]
                # A value that nothing reads is freed by the run that computes it.
                reads += [(run.node, version) for version in run.versions]
                run.last = mark(reads)


def _forget(values: Mapping[Any, dict[int, Piece]], last: Iterable[tuple[Node, int]]) -> None:
    """Free the values that were read for the last time."""
    for node, version in last:
        del values[node][version]


def _shared(paths: Sequence[tuple[int, ...]], cut: int) -> int:
    """Return how many choices the rows before and after a cut have in common at the start.

    Args:
        paths: The choices of each row, sorted.
        cut: The position of the first row after the cut.
    """
    before, after = paths[cut - 1], paths[cut]
    for place, (left, right) in enumerate(zip(before, after, strict=True)):
        if left != right:
            return place
    return len(after)


def number_versions(program: Program, choices: Sequence[Mapping[str, Hashable]]) -> dict[Node, list[int]]:
    """Map each value to the version that each row takes, numbered from 0 in the order of the rows.

    Args:
        program: The steps.
        choices: The keys of every row by name of the tensor.
    """
    rows = len(choices)
    versions = dict[Node, list[int]]()
    for node in (*program.constants, *program.entries):
        versions[node] = [0] * rows
    for node, name in program.held.items():
        versions[node] = _numbered(choice.get(name) for choice in choices)
    for node in program.steps:
        read = [versions[argument] for argument in node.all_input_nodes if max(versions[argument])]
        if program.is_random(node):
            # Each row draws its own numbers.
            versions[node] = list(range(rows))
        elif node.target is SYM_SIZE or not read:
            # Sizes are the same whatever is chosen.
            versions[node] = [0] * rows
        else:
            versions[node] = _numbered(zip(*read, strict=True))
    return versions


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    """Return a number for each key, equal for equal keys, from 0 in the order in which they first come."""
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
