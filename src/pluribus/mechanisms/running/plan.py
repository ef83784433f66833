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
from pluribus.mechanisms.running.stacking import Piece, compute, together

Bind = Callable[[Sequence[int]], Iterator[Mapping[str, Tensor]]]
"""Of positions of rows, the complete tensors of one after the other."""


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
    """How a list of rows runs.

    Args:
        program: The steps of the network.
        choices: Of every row, which value it takes of the tensors that rows have for themselves; a tensor
            that is not named is the same for all.

    Attributes:
        versions: Of every value, the version that each row takes, numbered from 0.
        order: Positions of distinct rows, those that share most beside each other.
    """

    def __init__(self, program: Program, choices: Sequence[Mapping[str, Hashable]]) -> None:
        self.program = program
        self.versions = number_versions(program, choices)
        used = (node for step in program.steps for node in (*step.all_input_nodes, step))
        forks = [node for node in dict.fromkeys(used) if self._forks(node)]
        self._paths = [tuple(self.versions[node][row] for node in forks) for row in range(len(choices))]
        firsts = {path: row for row, path in reversed(list(enumerate(self._paths)))}
        self.order = [firsts[path] for path in sorted(firsts)]
        self.blocks = lru_cache(maxsize=4)(self._blocks)

    def _forks(self, node: Node) -> bool:
        """Whether rows differ here of themselves, and not because of what comes before."""
        return max(self.versions[node]) > 0 and (node in self.program.held or self.program.is_random(node))

    def count(self, node: Node) -> int:
        """How many versions of a value there are."""
        return max(self.versions[node]) + 1

    @property
    def shares(self) -> bool:
        """Whether a layer runs less often than there are rows."""
        return any(self.count(node) < len(self._paths) for node in self.program.calls)

    def run(self, bind: Bind, inputs: Inputs, size: int) -> Tensor:
        """The predictions of all rows in the order they were given, `[rows, batch, ...]`.

        Args:
            bind: Gives the tensors of rows.
            inputs: One batch.
            size: How many rows a block may have.
        """
        program, blocks = self.program, self.blocks(size)
        values: dict[Any, dict[int, Piece]] = defaultdict(dict)
        leaves = program.signature.flatten(inputs)
        for node, value in (*program.constants.items(), *zip(program.entries, leaves, strict=True)):
            values[node][0] = Piece(value)
        sets, outputs = bind([row for block in blocks for row in block.bound]), []
        for block in blocks:
            for row, tensors in zip(block.bound, sets, strict=False):
                for node, name in program.held.items():
                    values[node].setdefault(self.versions[node][row], Piece(tensors[name]))
            for run in block.runs:
                pieces = compute(program, run.node, len(run.versions), run.reads, values)
                values[run.node].update(zip(run.versions, pieces, strict=True))
                del pieces
                _forget(values, run.last)
            outputs.append(self._predictions(block.rows, values))
            _forget(values, block.last)
        return self._in_order(outputs)

    def _predictions(self, rows: Sequence[int], values: Mapping[Node, Mapping[int, Piece]]) -> Tensor:
        """What the network predicts for some rows, `[rows, batch, ...]`."""
        if (node := self.program.prediction) is not None:
            return together([values[node][self.versions[node][row]] for row in rows])

        def predict(row: int) -> Tensor:
            held = map_arg(self.program.results, lambda node: values[node][self.versions[node][row]].value)
            return self.program.signature.predict(held)

        return torch.stack([predict(row) for row in rows])

    def _in_order(self, outputs: list[Tensor]) -> Tensor:
        places = {self._paths[row]: place for place, row in enumerate(self.order)}
        order = [places[path] for path in self._paths]
        joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        if order == list(range(len(joined))):
            return joined
        return joined.index_select(0, torch.tensor(order, device=joined.device))

    def _blocks(self, size: int) -> list[Block]:
        """The steps of all blocks of at most `size` rows."""
        known: dict[Node, set[int]] = defaultdict(set)
        blocks = []
        for rows in self.cut(size):
            bound = [row for row in rows if self._is_new(row, known)]
            runs = []
            for node in self.program.steps:
                firsts = {self.versions[node][row]: row for row in reversed(rows)}
                new = {version: firsts[version] for version in sorted(firsts.keys() - known[node])}
                if new:
                    known[node] |= new.keys()
                    reads = {
                        argument: [self.versions[argument][row] for row in new.values()]
                        for argument in node.all_input_nodes
                    }
                    runs.append(Run(node, list(new), reads))
            blocks.append(Block(rows, bound, runs))
        self._mark_last(blocks)
        return blocks

    def _is_new(self, row: int, known: dict[Node, set[int]]) -> bool:
        new = False
        for node in self.program.held:
            new |= self.versions[node][row] not in known[node]
            known[node].add(self.versions[node][row])
        return new

    def cut(self, size: int) -> Iterator[list[int]]:
        """The rows in blocks, cut where neighbours have least in common."""
        paths = [self._paths[row] for row in self.order]
        start = 0
        while start < len(paths):
            end = min(start + size, len(paths))
            if end < len(paths):
                end = max(range(start + size // 2 + 1, end + 1), key=lambda cut: (-_shared(paths, cut), cut))
            yield self.order[start:end]
            start = end

    def _mark_last(self, blocks: list[Block]) -> None:
        """Notes what is read for the last time, and what nothing reads."""
        seen: set[tuple[Node, int]] = set()

        def mark(reads: Iterable[tuple[Node, int]]) -> list[tuple[Node, int]]:
            new = [read for read in dict.fromkeys(reads) if read not in seen]
            seen.update(new)
            return new

        results = self.program.reads(self.program.results)
        for block in reversed(blocks):
            block.last = mark((node, self.versions[node][row]) for node in results for row in block.rows)
            for run in reversed(block.runs):
                read = [(node, version) for node, versions in run.reads.items() for version in versions]
                run.last = mark([*read, *((run.node, version) for version in run.versions)])


def _forget(values: Mapping[Any, dict[int, Piece]], last: Iterable[tuple[Node, int]]) -> None:
    for node, version in last:
        del values[node][version]


def _shared(paths: Sequence[tuple[int, ...]], cut: int) -> int:
    """How many choices the rows before and after a cut have in common at the start."""
    pairs = zip(paths[cut - 1], paths[cut], strict=True)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), len(paths[cut]))


def number_versions(program: Program, choices: Sequence[Mapping[str, Hashable]]) -> dict[Node, list[int]]:
    """Of every value, the version that each row takes, numbered from 0 in the order of the rows."""
    rows = len(choices)
    versions = {node: [0] * rows for node in (*program.constants, *program.entries)}
    for node, name in program.held.items():
        versions[node] = _numbered(choice.get(name) for choice in choices)
    for node in program.steps:
        if program.is_random(node):
            versions[node] = list(range(rows))
        elif node.target is SYM_SIZE:  # sizes are the same whatever is chosen
            versions[node] = [0] * rows
        else:
            read = [versions[argument] for argument in node.all_input_nodes if max(versions[argument])]
            versions[node] = _numbered(zip(*read, strict=True)) if read else [0] * rows
    return versions


def _numbered(keys: Iterable[Hashable]) -> list[int]:
    numbers: dict[Hashable, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]
