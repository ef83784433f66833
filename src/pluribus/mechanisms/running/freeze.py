"""Freezing: what inference alone allows.

A norm becomes part of the layer before it: BatchNorm in eval mode is affine in each channel, so that

    BN(W x + b) = s (W x + b - mean) + shift,    s = weight / sqrt(var + eps)

is a layer with weights s W and bias s (b - mean) + shift, up to rounding. This is done where the data
flow proves that the norm, and nothing else, reads what the layer computes. And narrow convolutions
get their channels last in memory, where no operator minds.
"""

import copy
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.graph.export import Graph, Operation
from pluribus.mechanisms.graph.folding import Norm, fold_norm
from pluribus.mechanisms.graph.operators import MEMORY_ORDER
from pluribus.mechanisms.graph.prove import prove
from pluribus.mechanisms.members.members import Binding, plant, reorder, tensors, uproot
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.runner import Runner

OPERATORS = {nn.Linear: "linear", nn.Conv1d: "conv1d", nn.Conv2d: "conv2d", nn.Conv3d: "conv3d"}
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
NARROW = 2e5
"""Weights of a convolution, on average, up to which channels come last on a CPU: ResNet-18 gains
with 1.4e5 and no more with 3.1e5 (benchmarks/packed_speed.py)."""

Fold = tuple[str, str]
"""The names of a layer and of the norm that becomes part of it."""


def freeze(runner: Runner, binding: Binding, example: Inputs | None) -> tuple[Runner, Binding, list[str]]:
    """The code and the tensors of all members for inference alone, and notes on what was changed.

    Args:
        runner: The code; copied.
        binding: The tensors; copied.
        example: One input, to read the data flow with; made from the network where it is None.
    """
    if binding.at_once:
        runner, binding = prune(runner, binding, merge=True)
        runner.train(False)
    binding, row = binding.freeze(), binding.pick([0])[0]
    member = materialise(runner.module, next(iter(binding.bind([row]))))
    narrow = _is_narrow(member)
    if not narrow and not any(type(layer) in NORMS for layer in member.modules()):
        return Runner(runner.module, runner.output, planned=True), binding, []
    # A row with a surrounding, such as kept dropout, may run code of both modes.
    modes = [False] if binding.surrounding(row) is None else [False, True]
    try:
        network = Network(member, example and example.to(next(member.parameters()).device))
        graphs = [network.graph(training) for training in modes]
    except (ConversionError, UnreadableError) as error:
        return Runner(runner.module, runner.output, planned=True), binding, [f"nothing folded: {error}"]
    unchanged, folds, notes = binding, list[Fold](), list[str]()
    for layer, norm in find_folds(member, graphs):
        why = _why_apart(binding, member, (layer, norm))
        folds += [] if why else [(layer, norm)]
        into = f"part of {layer or 'the network itself'}"
        notes.append(f"{norm} is not {into}: {why}" if why else f"{norm} is {into}")
    module, binding = copy.deepcopy(runner.module), copy.deepcopy(binding)
    for fold in folds:
        _fold_code(module, fold)
        for one in (binding, binding.prior) if binding.prior else (binding,):
            _fold_tensors(one, member, fold)
    if narrow and not any(op.operator in MEMORY_ORDER for graph in graphs for op in graph.operations()):
        _put_channels_last(binding, member)
        notes.append("channels last in memory")
    plain, changed = (Runner(code, runner.output, planned=True) for code in (runner.module, module))
    if why := _why_unproved(changed, binding, plain, unchanged, network.example):
        return plain, unchanged, [f"nothing folded: {why}"]
    return changed, binding, notes


def _why_unproved(new: Runner, changed: Binding, old: Runner, unchanged: Binding, example: Inputs) -> str:
    """Return why folded rows do not compute on the example what they did; empty where they do."""
    return prove(
        lambda: _one_by_one(new, changed, example.copy()),
        lambda: _one_by_one(old, unchanged, example.copy()),
    )


def _one_by_one(runner: Runner, binding: Binding, inputs: Inputs) -> Tensor:
    """Return the outputs of all rows without a plan, whose data flow would be read first."""
    outputs = runner.one_by_one(binding, binding.rows(training=False), inputs)
    if binding.prior is None:
        return outputs
    return outputs + binding.prior_scale * _one_by_one(runner.prior_runner, binding.prior, inputs)


def prune(runner: Runner, binding: Binding, merge: bool = False) -> tuple[Runner, Binding]:
    """The code and the tensors of rows that one run gives, without what none of them needs.

    Args:
        runner: The code; copied.
        binding: The tensors; copied.
        merge: Whether inputs that are the same in prediction become one.
    """
    (values,) = binding.bind(binding.pick([0]))
    module = materialise(runner.module, values)
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(values[name].requires_grad)
    module, binding = binding.prune(module, merge)
    return Runner(module, runner.output), binding


def find_folds(module: nn.Module, graphs: Sequence[Graph]) -> list[Fold]:
    """The norms that in all of these data flows follow a layer directly and alone.

    Args:
        module: The network.
        graphs: Its data flow in eval mode, and in train mode if rows run code of that mode too.
    """
    return sorted(set.intersection(*(set(_folds_of(module, graph)) for graph in graphs)))


def _folds_of(module: nn.Module, graph: Graph) -> Iterator[Fold]:
    layers = dict(module.named_modules(remove_duplicate=False))
    names = {layer: name for name, layer in module.named_modules()}
    operations = {operation.node: operation for operation in graph.operations()}
    runs = defaultdict[nn.Module, list[Operation]](list)
    for operation in operations.values():
        if operation.operator in ("batch_norm", *OPERATORS.values()):
            runs[layers[operation.layer]].append(operation)
    readers = _readers(module, graph)
    for norm in (layer for layer in names if type(layer) in NORMS and layer.running_mean is not None):
        sources = [operations.get(run.argument("input")) for run in runs[norm]]
        layer = layers[sources[0].layer] if sources and sources[0] else norm
        if type(layer) not in OPERATORS or sources != runs[layer]:
            continue
        alone = {run.node for run in runs[layer]}
        if (
            all(readers[parameter] == alone for parameter in layer.parameters())
            and all(set(a.node.users) == {b.node} for a, b in zip(runs[layer], runs[norm], strict=True))
            and all(node.meta["val"].ndim == layer.weight.ndim for node in alone)  # channels are axis 1
            and (graph.training or not any(run.argument("training") for run in runs[norm]))
        ):
            yield names[layer], names[norm]


def _readers(module: nn.Module, graph: Graph) -> dict[nn.Parameter, set[Node]]:
    """The operations that read each parameter."""
    names, parameters = graph.program.graph_signature.inputs_to_parameters, dict(module.named_parameters())
    readers = defaultdict[nn.Parameter, set[Node]](set)
    for node in graph.program.graph.nodes:
        if node.name in names:
            name = graph.first_names[names[node.name].removeprefix("network.")]
            readers[parameters[name]] |= set(node.users)
    return readers


def _why_apart(binding: Binding, member: nn.Module, fold: Fold) -> str:
    """Return why a norm cannot become part of a layer; empty where it can.

    The keys of the rows decide: tensors without a key are shared by all, and equal keys are one tensor.
    """
    held, values = _held(member, fold), tensors(member)
    if len({values[name].dtype for name in held if name}) > 1:
        return "they have different precisions"
    rows = binding.rows(training=False)
    keys = [binding.choices(row) for row in rows]
    layer_differs = any(name in chosen for chosen in keys for name in held[:2])
    norm_differs = any(name in chosen for chosen in keys for name in held[2:])
    if not layer_differs and not norm_differs:
        return ""
    if not layer_differs:
        # A layer that all members share runs once, and with the norms of each it would not.
        return "members share the layer and not the norm"
    own = tensors(binding.own)
    kept = all(name in own for chosen in keys for name in held if name in chosen)
    if not kept or binding.stacked_rows() is None:
        return "members compute the layer's tensors when they run"
    return ""


def _held(member: nn.Module, fold: Fold) -> list[str]:
    """The names of the layer's weight and bias, and of the norm's mean, variance, weight and bias."""
    names = {id(tensor): name for name, tensor in tensors(member).items()}
    layer, norm = map(member.get_submodule, fold)
    held = (layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    return [names.get(id(tensor), "") for tensor in held]


def _fold_code(module: nn.Module, fold: Fold) -> None:
    layer, norm = map(module.get_submodule, fold)
    if layer.bias is None:
        layer.bias = nn.Parameter(torch.empty_like(norm.running_mean))
    norm.__class__ = nn.Identity  # whoever holds the norm holds it still, with all it says of itself


@torch.no_grad()
def _fold_tensors(binding: Binding, member: nn.Module, fold: Fold) -> None:
    """Puts the product of layer and norm in place of the layer's tensors, once or for each member."""
    held, norm = _held(member, fold), member.get_submodule(fold[1])
    own, shared = tensors(binding.own), tensors(binding.shared)
    is_own = any(name in own for name in held)

    def product(row: int) -> tuple[Tensor, Tensor]:
        values: list[Any] = [own[name][row] if name in own else shared.get(name) for name in held]
        weight, bias, mean, variance, scale, shift = values
        return fold_norm(weight, bias, Norm(mean, variance, float(norm.eps), scale, shift))  # type: ignore[arg-type]

    products = [product(row) for row in range(binding.members if is_own else 1)]
    for name, rows in zip((held[0], f"{fold[0]}.bias".lstrip(".")), zip(*products, strict=True), strict=True):
        if name in shared:
            uproot(binding.shared, name)
        value = torch.stack(rows) if is_own else rows[0]
        plant(binding.own if is_own else binding.shared, name, nn.Parameter(value, requires_grad=False))


def _convolutions(module: nn.Module) -> list[Tensor]:
    """Weights of the convolutions that there still are: exits that nobody uses take theirs along."""
    found = (layer.weight for layer in module.modules() if isinstance(layer, nn.Conv2d))
    return [weight for weight in found if weight.numel()]


def _is_narrow(module: nn.Module) -> bool:
    """Whether convolutions are so narrow that a CPU runs them faster with channels last."""
    weights = _convolutions(module)
    return bool(weights) and (
        all(weight.device.type == "cpu" for weight in weights)
        and sum(weight.numel() for weight in weights) <= NARROW * len(weights)
    )


def _put_channels_last(binding: Binding, member: nn.Module) -> None:
    chosen = {id(weight) for weight in _convolutions(member)}
    names = {name for name, tensor in tensors(member).items() if id(tensor) in chosen}
    for tree, axes in ((binding.own, (0, 1, 3, 4, 2)), (binding.shared, (0, 2, 3, 1))):
        for name, tensor in tensors(tree).items():
            if name in names:
                tensor.data = reorder(tensor.data, axes)
