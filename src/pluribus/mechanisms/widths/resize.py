"""Resize: a network of other widths, from the user's own code, proved by exporting and running it."""

import copy
from collections.abc import Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from pluribus.errors import ConversionError
from pluribus.mechanisms.graph.export import TORCH, read_graph
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.network import Network, computed
from pluribus.mechanisms.network.outputs import select_output
from pluribus.mechanisms.widths.attributes import Key, candidates, configured, follow_tensors, sizes_seen
from pluribus.mechanisms.widths.channels import Labelled
from pluribus.mechanisms.widths.flow import REMEDY, place, shapes
from pluribus.mechanisms.widths.groups import Axis, Group, Widths, read_widths

ATTEMPTS = 16
"""How many ways of setting doubtful attributes are tried."""


def resize(
    network: Network,
    factor: float,
    multiples: Mapping[Group, int] | None = None,
    widths: Widths | None = None,
) -> nn.Module:
    """The network with `factor` times as many inner channels; inputs and outputs keep their sizes.

    Narrower networks keep the first channels' weights and wider ones repeat them: draw them afresh.

    Args:
        network: The module with its example.
        factor: Of every width, above 0; a width becomes `int(factor * width)`, rounded up to what
            heads and groups divide, at least 1.
        multiples: Further divisors of single groups.
        widths: What `read_widths` found; read anew if not given.
    """
    widths = widths or read_widths(network)
    sizes = widths.sizes(factor, multiples)
    kept = {group: group.channels[: sizes[group]] for group in widths.groups}
    return rebuilt(widths, sizes, kept)


def rebuilt(widths: Widths, sizes: Mapping[Group, int], kept: Mapping[Group, Tensor]) -> nn.Module:
    """A copy of the user's module with tensors and attributes of other sizes, proved to run."""
    seen = sizes_seen(widths, sizes)
    errors: list[ConversionError] = []
    for chosen in islice(_choices(widths, seen), ATTEMPTS):
        module = _with_tensors(widths, sizes, kept)
        found = {**candidates(module, seen)[0], **configured(module, seen)}
        for key in chosen:
            for holder, value in found[key]:
                setattr(holder, key[1], value)
        follow_tensors(module)
        try:
            prove(widths, module, sizes)
            return module
        except ConversionError as error:
            errors.append(error)
    raise errors[:2][-1]


def _choices(widths: Widths, seen: Mapping[str, Mapping[int, set[int]]]) -> Iterator[set[Key]]:
    """Sets of attributes to change, likeliest first."""
    found, doubtful = candidates(widths.network.module, seen)
    certain, config = set(found) - doubtful, set(configured(widths.network.module, seen))
    yield certain
    if doubtful:
        yield set(found)
    if config:
        yield set(found) | config
    for key in sorted(doubtful, key=str) if len(doubtful) > 1 else ():
        yield certain | {key}
        yield set(found) - {key}
    for key in sorted(certain, key=str):
        yield certain - {key}


def _with_tensors(widths: Widths, sizes: Mapping[Group, int], kept: Mapping[Group, Tensor]) -> nn.Module:
    module = widths.network.module
    everything = torch.cat([torch.zeros(1, dtype=torch.long), *kept.values()])
    memo: dict[int, Any] = computed(module)
    for name, tensor in widths.network.tensors().items():
        value = tensor.detach()
        for axis in range(tensor.ndim):
            value = value.index_select(axis, _index(widths, (name, axis), sizes, everything, tensor))
        value = _laid_out(value.clone(), tensor)
        memo[id(tensor)] = (
            nn.Parameter(value, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else value
        )
    return copy.deepcopy(module, memo)


def _laid_out(value: Tensor, like: Tensor) -> Tensor:
    """The value with its axes in memory as those of another tensor, such as channels last."""
    axes = sorted(range(value.ndim), key=like.stride, reverse=True)
    return value.permute(axes).contiguous().permute(sorted(range(value.ndim), key=axes.__getitem__))


def _index(widths: Widths, axis: Axis, sizes: Mapping[Group, int], kept: Tensor, tensor: Tensor) -> Tensor:
    """The indices of an axis that stay; those of a wider network begin again at the end."""
    size = tensor.shape[axis[1]]
    channels = widths.axes.get(axis, torch.zeros(size, dtype=torch.long))
    free = widths.owner[channels] < 0
    new = widths.size(channels, sizes)
    index = (free | torch.isin(channels, kept)).nonzero().flatten()
    if len(index) != new:
        index = torch.arange(new) % size
    return index.to(tensor.device)


def prove(widths: Widths, module: nn.Module, sizes: Mapping[Group, int]) -> None:
    """Runs and exports the new network: same operators, expected shapes, same output shape."""
    network = widths.network
    expected = _output_shape(network.module, network)
    for training in (False, True):
        try:
            came = _output_shape(module, network, training)
        except Exception as error:  # whatever the user's code raises for sizes that do not fit
            raise _refused(module, error) from error
        if came != expected:
            raise ConversionError(f"the resized network must return {expected}, however: {came}. {REMEDY}")
    new = [
        n for n in read_graph(module, network.example, False).program.graph.nodes if n.op == "call_function"
    ]
    old = [n for n in network.graph(False).program.graph.nodes if n.op == "call_function"]
    for before, after in zip(old, new, strict=False):
        value = widths.values.get(before)
        if before.target != after.target:
            raise _strayed(widths, before, f"{before.target} became {after.target}")
        if isinstance(value, Labelled):
            shape, came = widths.shape(value, sizes), shapes(after.meta["val"])
            if any(one not in (None, other) for one, other in zip(shape, came, strict=True)):
                raise _strayed(widths, before, f"{shape} was expected and {came} came")
    if len(old) != len(new):
        raise ConversionError(
            "the resized network must run the same operators, however: "
            f"{len(new)} instead of {len(old)}. {REMEDY}"
        )


def _output_shape(module: nn.Module, network: Network, training: bool = False) -> tuple[int, ...]:
    example = network.example.copy()
    with dry_run(module, training), torch.no_grad():
        returned = module(*example.args, **example.keywords)
    return tuple(select_output(returned, network.output).shape)


def _strayed(widths: Widths, node: Node, what: str) -> ConversionError:
    return ConversionError(
        "numbers in the code of a network must follow its widths, however: in "
        f"{place(widths.operations[node])} {what}. {REMEDY}"
    )


def _refused(module: nn.Module, error: Exception) -> ConversionError:
    """An error of the resized network, with the layer and the line of the user's code."""
    names = {id(layer): name for name, layer in module.named_modules()}
    where, line = "", ""
    for frame, number in _frames(error.__traceback__):
        layer = frame.f_locals.get("self")
        if isinstance(layer, nn.Module) and id(layer) in names:
            where = names[id(layer)]
        if not frame.f_code.co_filename.startswith(TORCH) and frame.f_code.co_filename != __file__:
            line = f"{frame.f_code.co_filename}:{number}"
    reason = (str(error).strip() or repr(error)).splitlines()[0].removesuffix(".")
    return ConversionError(
        "numbers in the code of a network must follow its widths, however: "
        f"{where or 'the network itself'} ({line}) fails when resized: {reason}. {REMEDY}"
    )


def _frames(traceback: TracebackType | None) -> Iterator[tuple[Any, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next
