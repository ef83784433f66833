"""Tracing: one graph of all members and their pooled outputs, with a batch of any size."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from pluribus.errors import ExportError, SettingError
from pluribus.export.file_format import Dynamic
from pluribus.export.fresh_inputs import fresh_inputs
from pluribus.export.head import Pooled
from pluribus.export.source import Source
from pluribus.mechanisms.network.dry_run import PROCESS, restored, silence
from pluribus.mechanisms.network.torch_private import ORIGIN, kept_random_state

MOST_NODES = 5000
"""Operators of a graph; converting 16 passes of a ResNet to ONNX, about 5,000, takes minutes."""
BATCHES = (3, 5, 7, 11, 13, 17, 19)
"""Batch sizes to trace with; torch takes an axis of size 1, and equal sizes, for something special."""


@dataclass(frozen=True)
class SizeRule:
    """The sizes that a free size may have.

    Attributes:
        multiple_of: It is a multiple of this; 2 for networks that halve an image and double it again.
        at_least: The smallest.
        at_most: The largest, such as the number of positions that a transformer knows; None is no bound.
    """

    multiple_of: int = 1
    at_least: int = 1
    at_most: int | None = None

    def allows(self, size: int) -> bool:
        """Return whether a free size may be this one."""
        largest = size if self.at_most is None else self.at_most
        return size % self.multiple_of == 0 and self.at_least <= size <= largest

    def beyond(self) -> list[int]:
        """Return the sizes next to these that a network may take for something else."""
        found = list[int]()
        below = self.at_least - self.multiple_of
        # An axis of one is what torch takes for something special, and no branch.
        if below > self.multiple_of:
            found.append(below)
        if self.at_most is not None:
            found.append(self.at_most + self.multiple_of)
        return found

    def to_dict(self) -> dict[str, int]:
        """Return the rule as plain data, bounds that there are not left out."""
        found = {"multiple_of": self.multiple_of, "at_least": self.at_least}
        return found if self.at_most is None else {**found, "at_most": self.at_most}


def trace(source: Source, pooled: Pooled, sizes: Dynamic) -> ExportedProgram:
    """Return the graph of an ensemble with its pooled outputs.

    Args:
        source: What is exported.
        pooled: Its module.
        sizes: Its free sizes, as `free_sizes` returns them.

    Raises:
        ExportError: The data flow cannot be read, a size cannot be free, or the graph is too large.
    """
    batch = distinct_batch(source.example.tensors())
    tensors = source.select(fresh_inputs(source.example, batch))
    return trace_module(pooled, tensors, sizes, len(source.weights))


def trace_module(
    module: nn.Module, tensors: Sequence[Tensor], sizes: Dynamic, members: int
) -> ExportedProgram:
    """Return the graph of a module.

    Args:
        module: Takes tensors by position, and returns a dict of tensors.
        tensors: Its inputs, with a batch as `distinct_batch` returns it.
        sizes: Its free sizes.
        members: How many it has, for the message.

    Raises:
        ExportError: As `trace`.
    """
    try:
        program = _exported(module, tensors, sizes)
    # torch.export has errors without a common parent.
    except Exception as error:
        _check_free_sizes(str(error), sizes)
        raise ExportError(
            f"the ensemble must be one graph to be exported, got {type(error).__name__}: {_reason(error)}. "
            "Use ensemble.freeze() and PyTorch, or change the line that torch.export cannot read."
        ) from error
    count = sum(node.op == "call_function" for node in program.graph.nodes)
    if count > MOST_NODES:
        raise ExportError(
            f"the graph must have at most {MOST_NODES} operators, got {count} for {members} members. "
            "Export fewer of them: ensemble.shrink(ensemble.rank(data)[:8])."
        )
    _forget_origin(program)
    return program


def _exported(module: nn.Module, tensors: Sequence[Tensor], sizes: Dynamic) -> ExportedProgram:
    """Return the graph of a module, with multiples as free sizes where the network takes no others."""
    with PROCESS, restored(module, False), silence(), kept_random_state(), torch.no_grad():
        try:
            return _export(module, tensors, _dynamic_shapes(sizes, {}))
        # As above.
        except Exception as error:
            rules = suggested_rules(str(error), sizes)
            if not rules:
                raise
        return _export(module, tensors, _dynamic_shapes(sizes, rules))


def _export(module: nn.Module, tensors: Sequence[Tensor], shapes: dict[str, Any]) -> ExportedProgram:
    return torch.export.export(module, tuple(tensors), dynamic_shapes=shapes, strict=False)


def suggested_rules(message: str, sizes: Dynamic) -> dict[str, SizeRule]:
    """Return the rules of free sizes that torch's message suggests; none where they are of another kind.

    Multiples come from layers that divide a size. Least sizes come from layers that make an axis of size 1,
    which torch takes for something special, or from a branch in the network's code. Largest sizes come from
    tables, as of positions, or from a branch. The graph has one side of a branch, so `verify` compares files
    with `predict` beyond the bounds too.

    Args:
        message: Of the error of `torch.export` 2.13, such as `height = 4*_height`.
        sizes: The free sizes.
    """
    names = {size for axes in sizes.values() for size in axes.values()}
    fixes = _suggested_fixes(message)
    # A batch may have any size, or there is no file.
    if "batch" in {*fixes.multiples, *fixes.least}:
        return {}
    found = dict[str, SizeRule]()
    for name in names & {*fixes.multiples, *fixes.least}:
        factor, most = fixes.multiples.get(name, 1), fixes.most.get(name)
        at_most = None if most is None else factor * most
        found[name] = SizeRule(factor, factor * fixes.least.get(name, 1), at_most)
    return found


class _Fixes(NamedTuple):
    """Suggestions of torch: by name, the factor of a size, and the bounds of what the factor multiplies."""

    multiples: dict[str, int]
    least: dict[str, int]
    most: dict[str, int]


def _suggested_fixes(message: str) -> _Fixes:
    """Return the suggestions in an error of `torch.export`; none where one is of another kind.

    Args:
        message: Of the error.
    """
    found = _Fixes({}, {}, {})
    for line in message.partition("Suggested fixes:")[2].strip().partition("\n\n")[0].splitlines():
        bound = re.fullmatch(r"(\w+) = Dim\('\w+'(?:, min=(\d+))?(?:, max=(?:oo|(\d+)))?\)", line.strip())
        multiple = re.fullmatch(r"(\w+) = (\d+)\*_(\w+)", line.strip())
        if bound is not None:
            name = bound[1].removeprefix("_")
            found.least[name] = max(int(bound[2] or 1), 1)
            if bound[3]:
                found.most[name] = int(bound[3])
        elif multiple is not None and multiple[1] == multiple[3]:
            found.multiples[multiple[1]] = int(multiple[2])
        else:
            return _Fixes({}, {}, {})
    return found


def size_rules(program: ExportedProgram, sizes: Dynamic) -> dict[str, SizeRule]:
    """Return by name the rules of the free sizes of a graph, that of the batch excepted."""
    ranges = {str(symbol): found for symbol, found in program.range_constraints.items()}
    rules = dict[str, SizeRule]()
    for node in program.graph.nodes:
        for axis, size in sizes.get(node.name, {}).items():
            if size == "batch":
                continue
            factor, _, symbol = str(node.meta["val"].shape[axis]).rpartition("*")
            multiple = int(factor or 1)
            found = ranges[symbol]
            # torch writes infinity as a symbol, or as the largest number of a machine.
            bounded = found.upper.is_Integer and int(found.upper) < 1 << 31
            at_most = multiple * int(found.upper) if bounded else None
            rules[size] = SizeRule(multiple, multiple * int(found.lower), at_most)
    return rules


def _check_free_sizes(message: str, sizes: Dynamic) -> None:
    """Raise `ExportError` where torch's message is about a size that the network does not let vary."""
    for name, axes in sizes.items():
        for axis, size in axes.items():
            # The words of torch 2.13. Other words give the general message, with torch's own reason.
            fixed = re.search(rf"marked {size} as dynamic but .* constant \((\d+)\)", message)
            if fixed is None:
                continue
            if size == "batch":
                raise ExportError(
                    f"the batch must have any size to be exported, got a network that fixes axis {axis} of "
                    f"input {name} to {fixed[1]}. Change the line that does, or use ensemble.freeze()."
                )
            raise ExportError(
                f"dynamic must name sizes that may vary, got {size!r}, axis {axis} of input {name}, which "
                f"the network fixes to {fixed[1]}. Leave it out of dynamic."
            )


def _forget_origin(program: ExportedProgram) -> None:
    """Remove the source lines of operators: they name files of this machine, and take much room."""
    for module in program.graph_module.modules():
        nodes = module.graph.nodes if isinstance(module, GraphModule) else ()
        for node in nodes:
            for name in ORIGIN:
                node.meta.pop(name, None)


def distinct_batch(tensors: Iterable[Tensor]) -> int:
    """Return a batch size that no other axis of the inputs has."""
    sizes = set[int]()
    for tensor in tensors:
        sizes.update(tensor.shape[1:])
    return next((batch for batch in BATCHES if batch not in sizes), BATCHES[-1])


def free_sizes(source: Source, dynamic: Dynamic) -> dict[str, dict[int, str]]:
    """Return by input and axis the names of all free sizes, that of the batch included.

    Raises:
        SettingError: `dynamic` names an input or axis that there is not.
    """
    tensors = source.tensors(source.example)
    unknown = sorted(set(dynamic) - set(tensors))
    if unknown:
        raise SettingError(
            f"dynamic must name inputs among {', '.join(tensors)}, got {', '.join(map(repr, unknown))}."
        )
    found = dict[str, dict[int, str]]()
    for name, tensor in tensors.items():
        has_batch = tensor.ndim > 0 and tensor.shape[0] == source.example.batch
        found[name] = {0: "batch"} if has_batch else {}
        for axis, size in dynamic.get(name, {}).items():
            _check_axis(name, tensor, axis, size)
            found[name][axis] = size
    return found


def _dynamic_shapes(sizes: Dynamic, rules: Mapping[str, SizeRule]) -> dict[str, Any]:
    """Return free sizes and their rules in the form of `torch.export`."""
    # Axes with one name must be one dimension, so that torch knows that they are equal.
    dimensions = dict[str, Any]()
    shapes = dict[str, Any]()
    for name, axes in sizes.items():
        shapes[name] = {}
        for axis, size in axes.items():
            if size not in dimensions:
                dimensions[size] = _dimension(size, rules.get(size, SizeRule()))
            shapes[name][axis] = dimensions[size]
    return shapes


def _dimension(size: str, rule: SizeRule) -> Any:
    """Return one free size in the form of `torch.export`."""
    if rule.multiple_of == 1:
        return Dim(size, min=rule.at_least, max=rule.at_most)
    most = None if rule.at_most is None else rule.at_most // rule.multiple_of
    factor = Dim(f"_{size}", min=rule.at_least // rule.multiple_of, max=most)
    return rule.multiple_of * factor


def _check_axis(name: str, tensor: Tensor, axis: object, size: object) -> None:
    """Raise unless an axis may have a free size with this name."""
    if type(axis) is not int or not 1 <= axis < tensor.ndim:
        raise SettingError(
            f"dynamic of input {name} must map axes from 1 to {tensor.ndim - 1} to names, got axis {axis!r}. "
            "The batch, axis 0, is always dynamic."
        )
    if not isinstance(size, str) or not size.isidentifier() or size == "batch":
        raise SettingError(
            f"dynamic of input {name} must name the size of axis {axis} by a word, such as 'height', "
            f"got {size!r}."
        )


def _reason(error: Exception) -> str:
    """Return the lines of torch's message that tell what is wrong; the rest is advice for its developers."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [line for line in lines if not re.match(r"(File|The following call|For more|Suggested)", line)]
    return " ".join(kept[:3]).rstrip(".")[:500]
