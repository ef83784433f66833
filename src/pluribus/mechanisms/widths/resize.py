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
from pluribus.mechanisms.graph.export import read_graph
from pluribus.mechanisms.graph.operation import OURS, TORCH, Graph
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.network import Network, computed
from pluribus.mechanisms.network.outputs import select_output
from pluribus.mechanisms.network.torch_private import tree_unflatten
from pluribus.mechanisms.widths.attributes import Key, candidates, configured, follow_tensors, sizes_seen
from pluribus.mechanisms.widths.channels import Labelled
from pluribus.mechanisms.widths.flow import REMEDY, place, shapes
from pluribus.mechanisms.widths.groups import Axis, Group, Widths, read_widths

# How many ways of setting doubtful attributes are tried: each costs an export of the network.
ATTEMPTS = 16


def resize(
    network: Network,
    factor: float,
    multiples: Mapping[Group, int] | None = None,
    widths: Widths | None = None,
) -> nn.Module:
    """Return the network with `factor` times as many inner channels; inputs and outputs keep their sizes.

    Narrower networks keep the first channels' weights and wider ones repeat them: draw them afresh.

    Args:
        network: The module with its example.
        factor: Of every width, above 0; a width becomes `int(factor * width)`, rounded up to what
            heads and groups divide, at least 1.
        multiples: Further divisors of single groups.
        widths: What `read_widths` found; read anew if not given.

    Raises:
        ConversionError: Numbers in the user's code do not follow the widths.
    """
    widths = widths or read_widths(network)
    sizes = widths.sizes(factor, multiples)
    kept = {group: group.channels[: sizes[group]] for group in widths.groups}
    return rebuilt(widths, sizes, kept)


def rebuilt(widths: Widths, sizes: Mapping[Group, int], kept: Mapping[Group, Tensor]) -> nn.Module:
    """Return a copy of the user's module with tensors and attributes of other sizes, proved to run.

    Args:
        widths: The groups of the network's channels.
        sizes: The new number of channels of every group.
        kept: The channels of every group that stay, where it becomes narrower.
    """
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
    # The first attempt changes what is certain, the second all: its error tells what is still wrong.
    raise errors[:2][-1]


def _choices(widths: Widths, seen: Mapping[str, Mapping[int, set[int]]]) -> Iterator[set[Key]]:
    """Yield sets of attributes to change, likeliest first."""
    found, doubtful = candidates(widths.network.module, seen)
    every = set(found)
    certain, config = every - doubtful, set(configured(widths.network.module, seen))
    yield certain
    if doubtful:
        yield every
    if config:
        yield every | config
    if len(doubtful) > 1:
        for key in sorted(doubtful, key=str):
            yield certain | {key}
            yield every - {key}
    # A number may equal a width by chance, as a kernel size does.
    for key in sorted(certain, key=str):
        yield certain - {key}


def _with_tensors(widths: Widths, sizes: Mapping[Group, int], kept: Mapping[Group, Tensor]) -> nn.Module:
    """Return a copy of the module whose tensors have their new sizes, and whose attributes have the old."""
    module = widths.network.module
    # By channel, whether it stays.
    stays = torch.zeros(len(widths.owner), dtype=torch.bool)
    stays[torch.cat([torch.zeros(1, dtype=torch.long), *kept.values()])] = True
    memo: dict[int, Any] = computed(module)
    for name, tensor in widths.network.tensors().items():
        value = tensor.detach()
        for axis in range(tensor.ndim):
            index = _index(widths, (name, axis), sizes, stays, tensor)
            if not torch.equal(index, torch.arange(tensor.shape[axis], device=index.device)):
                value = value.index_select(axis, index)
        # An axis is as long as before where nothing was picked from it alone.
        if value.shape == tensor.shape:
            value = value.clone()
        value = _laid_out(value, tensor)
        if isinstance(tensor, nn.Parameter):
            value = nn.Parameter(value, tensor.requires_grad)
        # `deepcopy` takes what the memo holds in place of a copy.
        memo[id(tensor)] = value
    return copy.deepcopy(module, memo)


def _laid_out(value: Tensor, like: Tensor) -> Tensor:
    """Return the value with its axes in memory as those of another tensor, such as channels last."""
    axes = sorted(range(value.ndim), key=like.stride, reverse=True)
    return value.permute(axes).contiguous().permute(sorted(range(value.ndim), key=axes.__getitem__))


def _index(widths: Widths, axis: Axis, sizes: Mapping[Group, int], stays: Tensor, tensor: Tensor) -> Tensor:
    """Return the indices of an axis that stay; those of a wider network begin again at the end.

    Args:
        widths: The groups of the network's channels.
        axis: Of a tensor.
        sizes: The new number of channels of every group.
        stays: By channel, whether it stays.
        tensor: That has the axis.
    """
    size = tensor.shape[axis[1]]
    channels = widths.axes.get(axis, torch.zeros(size, dtype=torch.long))
    free = widths.owner[channels] < 0
    new = widths.size(channels, sizes)
    index = (free | stays[channels]).nonzero().flatten()
    if len(index) != new:
        index = torch.arange(new) % size
    return index.to(tensor.device)


def prove(widths: Widths, module: nn.Module, sizes: Mapping[Group, int]) -> None:
    """Raise unless the new network runs the same operators, with the expected shapes, to the same output.

    Args:
        widths: The groups of the old network's channels.
        module: The new network.
        sizes: The new number of channels of every group.
    """
    network = widths.network
    expected = _expected_shape(network)
    for training in (False, True):
        try:
            came = _output_shape(module, network, training)
        # The user's code may raise anything for sizes that do not fit.
        except Exception as error:
            raise _refused(module, error) from error
        if came != expected:
            raise ConversionError(f"expected output {expected} of the resized network, got {came}. {REMEDY}")
    # As the widths were read, with the batch of the example.
    old = _calls(network.graph(training=False, any_batch=False))
    # Messages name the lines of the old network.
    new = _calls(read_graph(module, network.example, training=False, any_batch=False, lines=False))
    for before, after in zip(old, new, strict=False):
        _check_step(widths, before, after, sizes)
    if len(old) != len(new):
        raise ConversionError(
            f"expected {len(old)} operators in the resized network, got {len(new)}: its code branches on a "
            f"width. {REMEDY}"
        )


def _calls(graph: Graph) -> list[Node]:
    return [node for node in graph.program.graph.nodes if node.op == "call_function"]


def _check_step(widths: Widths, before: Node, after: Node, sizes: Mapping[Group, int]) -> None:
    """Raise unless a step runs the same operator, and its result has the size that its channels tell."""
    if before.target != after.target:
        raise _strayed(widths, before, f"{before.target}, got {after.target}")
    value = widths.values.get(before)
    if not isinstance(value, Labelled):
        return
    expected, came = widths.shape(value, sizes), shapes(after.meta["val"])
    if any(one not in (None, other) for one, other in zip(expected, came, strict=True)):
        raise _strayed(widths, before, f"{expected}, got {came}")


def _expected_shape(network: Network) -> tuple[int, ...]:
    """Return the shape of the network's prediction, as its data flow has it, or as the network runs."""
    graph = network.graph(training=False, any_batch=False)
    (results,) = graph.program.graph.find_nodes(op="output")
    kinds = [spec.kind.name for spec in graph.program.graph_signature.output_specs]
    returned = [
        value.meta["val"] if isinstance(value, Node) else value
        for value, kind in zip(results.args[0], kinds, strict=True)
        if kind == "USER_OUTPUT"
    ]
    try:
        prediction = select_output(tree_unflatten(returned, graph.program.call_spec.out_spec), network.output)
        # A size that follows from values is no number yet.
        return tuple(map(int, prediction.shape))
    # A user's function may want real values, and raise anything for others.
    except Exception:
        return _output_shape(network.module, network)


def _output_shape(module: nn.Module, network: Network, training: bool = False) -> tuple[int, ...]:
    """Return the shape of the prediction on the example."""
    example = network.example.copy()
    with dry_run(module, training), torch.no_grad():
        returned = module(*example.args, **example.keywords)
    return tuple(select_output(returned, network.output).shape)


def _strayed(widths: Widths, node: Node, difference: str) -> ConversionError:
    """Return the error of a step that is not what its channels tell; `difference` is `expected, got`."""
    return ConversionError(
        "numbers in the code of a network must follow its widths: in "
        f"{place(widths.operations[node])} expected {difference}. {REMEDY}"
    )


def _refused(module: nn.Module, error: Exception) -> ConversionError:
    """Return the error of a resized network, with the layer and the line of the user's code."""
    names = {id(layer): name for name, layer in module.named_modules()}
    where, line = "", ""
    for frame, number in _frames(error.__traceback__):
        layer = frame.f_locals.get("self")
        if isinstance(layer, nn.Module) and id(layer) in names:
            where = names[id(layer)]
        file = frame.f_code.co_filename
        if not file.startswith((TORCH, OURS)):
            line = f"{file}:{number}"
    reason = (str(error).strip() or repr(error)).splitlines()[0].removesuffix(".")
    return ConversionError(
        "numbers in the code of a network must follow its widths: "
        f"{where or 'the network itself'} ({line}) fails when resized: {reason}. {REMEDY}"
    )


def _frames(traceback: TracebackType | None) -> Iterator[tuple[Any, int]]:
    """Yield the frames of a traceback with their lines, outermost first."""
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next
