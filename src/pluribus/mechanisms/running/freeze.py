"""Freezing: what inference alone allows.

A norm becomes part of the layer before it: BatchNorm in eval mode is affine in each channel, so that

    BN(W x + b) = s (W x + b - mean) + shift,    s = weight / sqrt(var + eps)

is a layer with weights s W and bias s (b - mean) + shift, up to rounding. This is done where the data
flow proves that the norm, and nothing else, reads what the layer computes. And narrow convolutions
get their channels last in memory, where no operator minds.
"""

import copy
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Node

from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.graph.export import Graph, Operation
from pluribus.mechanisms.graph.folding import Norm, fold_norm
from pluribus.mechanisms.graph.operators import MEMORY_ORDER
from pluribus.mechanisms.graph.prove import prove
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.code import Code
from pluribus.mechanisms.members.index import Fixed, Index, Seeds
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import named_tensors, plant, reorder, uproot
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.engines import run_slowly

OPERATORS = {nn.Linear: "linear", nn.Conv1d: "conv1d", nn.Conv2d: "conv2d", nn.Conv3d: "conv3d"}
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
NARROW = 2e5
"""Weights of a convolution, on average, up to which channels come last on a CPU: ResNet-18 gains
with 1.4e5 and no more with 3.1e5 (benchmarks/packed_speed.py)."""

Fold = tuple[str, str]
"""The names of a layer and of the norm that becomes part of it."""


def freeze(members: AnyMembers, example: Inputs | None) -> tuple[AnyMembers, list[str]]:
    """Return all members for inference alone, and notes on what was folded and what could not be.

    Args:
        members: Copied.
        example: One input, to read the data flow with; made from the network where it is None.
    """
    if isinstance(members, WithPrior):
        learnt, notes = freeze_learnt(members.learnt, example)
        prior, others = freeze_learnt(members.prior, example)
        notes += [f"prior networks: {note}" for note in others if "nothing" in note]
        return WithPrior(learnt, prior, members.scale), notes
    return freeze_learnt(members, example)


def freeze_learnt(members: Members, example: Inputs | None) -> tuple[Members, list[str]]:
    """Return members without a prior for inference alone, and notes; as `freeze`."""
    plain = _resolved(members)
    caller, row = plain.code.caller, plain.index.pick([0])[0]
    member = materialise(caller.module, plain.tensors.of_one(row))
    narrow = _is_narrow(member)
    if not narrow and not any(type(layer) in NORMS for layer in member.modules()):
        return plain, []
    try:
        network = Network(member, example and example.to(next(member.parameters()).device))
        graphs = _read_graphs(network, plain.code)
    except (ConversionError, UnreadableError) as error:
        return plain, [f"nothing folded: {error}"]
    folds, notes = _choose_folds(plain, member, find_folds(member, graphs))
    last = narrow and not _minds_order(graphs)
    if not folds and not last:
        return plain, notes
    folded = _folded(plain, member, folds)
    if last:
        _put_channels_last(folded.tensors, member)
        notes.append("channels last in memory")
    rows = plain.index.rows(training=False)
    why = prove(
        lambda: run_slowly(folded, rows, network.example.copy()),
        lambda: run_slowly(plain, rows, network.example.copy()),
    )
    return (plain, [f"nothing folded: {why}"]) if why else (folded, notes)


def _read_graphs(network: Network, code: Code) -> list[Graph]:
    """Return the data flow of eval mode, and of train mode where kept dropout runs code of both."""
    return [network.graph(training) for training in ((False, True) if code.is_random else (False,))]


def _minds_order(graphs: Sequence[Graph]) -> bool:
    """Return whether an operator refuses, or reads differently, values with their channels last."""
    return any(operation.operator in MEMORY_ORDER for graph in graphs for operation in graph.operations())


def _resolved(members: Members) -> Members:
    """Return the members with nothing left to compute, and without what no row of eval mode needs."""
    rows, code = members.index.rows(training=False), members.code
    if code.one_pass:
        code, tensors = code.keep(members.tensors, rows, merge=True)
        index = members.index.keep(range(len(rows)), rows)
    else:
        tensors, index = members.tensors.resolved(rows), copy.deepcopy(members.index)
        if isinstance(index, Seeds) and isinstance(tensors, Stacked) and tensors.parts()[1]:
            index = Fixed(len(rows))  # what the seeds stood for is stored in their order
    return _frozen(members, index, tensors.requires_grad_(False), _with_module(code, code.caller.module))


def _frozen(members: Members, index: Index, tensors: Tensors, code: Code) -> Members:
    frozen = Members(index.requires_grad_(False), tensors, code, members.lowers)
    frozen.frozen = True
    return frozen.eval()


def _with_module(code: Code, module: nn.Module) -> Code:
    return code.with_caller(Caller(module, code.caller.output, code.caller.inside))


def _choose_folds(members: Members, member: nn.Module, found: Sequence[Fold]) -> tuple[list[Fold], list[str]]:
    """Return the norms that become part of a layer, and a note on each that was found."""
    folds, notes = list[Fold](), list[str]()
    keys = [members.tensors.keys(row) for row in members.index.rows(training=False)]
    for layer, norm in found:
        why = _why_apart(members.tensors, keys, member, (layer, norm))
        into = f"part of {layer or 'the network itself'}"
        notes.append(f"{norm} is not {into}: {why}" if why else f"{norm} is {into}")
        if not why:
            folds.append((layer, norm))
    return folds, notes


def _folded(members: Members, member: nn.Module, folds: Sequence[Fold]) -> Members:
    """Return a copy of the members in which norms are part of the layers before them."""
    module, tensors = copy.deepcopy(members.code.caller.module), copy.deepcopy(members.tensors)
    for fold in folds:
        _fold_code(module, fold)
        _fold_tensors(tensors, member, fold)
    return _frozen(members, copy.deepcopy(members.index), tensors, _with_module(members.code, module))


def find_folds(module: nn.Module, graphs: Sequence[Graph]) -> list[Fold]:
    """The norms that in all of these data flows follow a layer directly and alone.

    Args:
        module: The network.
        graphs: Its data flow in eval mode, and in train mode if rows run code of that mode too.
    """
    return sorted(set.intersection(*(set(_folds_of(module, graph)) for graph in graphs)))


def _folds_of(module: nn.Module, graph: Graph) -> Iterator[Fold]:
    names = {layer: name for name, layer in module.named_modules()}
    operations = {operation.node: operation for operation in graph.operations()}
    runs = _runs_of(module, operations.values())
    readers = _readers(module, graph)
    for norm, name in names.items():
        if type(norm) not in NORMS or norm.running_mean is None:
            continue
        layer = _layer_before(module, runs[norm], operations)
        if layer is None or not _runs_match(runs[layer], runs[norm], operations):
            continue
        if _is_read_alone(layer, runs[layer], runs[norm], readers) and _is_eval(graph, runs[norm]):
            yield names[layer], name


def _runs_of(module: nn.Module, operations: Iterable[Operation]) -> dict[nn.Module, list[Operation]]:
    """Return the operations of each layer that may be folded, or be folded into, in the order of the run."""
    layers = dict(module.named_modules(remove_duplicate=False))
    runs = defaultdict[nn.Module, list[Operation]](list)
    for operation in operations:
        if operation.operator in ("batch_norm", *OPERATORS.values()):
            runs[layers[operation.layer]].append(operation)
    return runs


def _layer_before(
    module: nn.Module, norms: Sequence[Operation], operations: Mapping[Node, Operation]
) -> nn.Module | None:
    """Return the layer that computes what a norm reads first, if a norm can become part of it."""
    source = operations.get(norms[0].argument("input")) if norms else None
    if source is None:
        return None
    layer = dict(module.named_modules(remove_duplicate=False))[source.layer]
    return layer if type(layer) in OPERATORS else None


def _runs_match(
    layers: Sequence[Operation], norms: Sequence[Operation], operations: Mapping[Node, Operation]
) -> bool:
    """Return whether every run of the norm reads the run of the layer at the same place."""
    return [operations.get(run.argument("input")) for run in norms] == list(layers)


def _is_read_alone(
    layer: nn.Module,
    runs: Sequence[Operation],
    norms: Sequence[Operation],
    readers: Mapping[nn.Parameter, set[Node]],
) -> bool:
    """Return whether the norm alone reads what the layer computes, and the layer alone its weights."""
    alone = {run.node for run in runs}
    if any(readers[parameter] != alone for parameter in layer.parameters()):
        return False
    # Channels are axis 1 only of values with as many axes as the weight.
    rank = layer.weight.ndim
    if any(node.meta["val"].ndim != rank for node in alone):
        return False
    return all(set(run.node.users) == {norm.node} for run, norm in zip(runs, norms, strict=True))


def _is_eval(graph: Graph, norms: Sequence[Operation]) -> bool:
    """Return whether the norm uses its running statistics; code of train mode runs with them when kept."""
    return graph.training or not any(run.argument("training") for run in norms)


def _readers(module: nn.Module, graph: Graph) -> dict[nn.Parameter, set[Node]]:
    """The operations that read each parameter."""
    names, parameters = graph.program.graph_signature.inputs_to_parameters, dict(module.named_parameters())
    readers = defaultdict[nn.Parameter, set[Node]](set)
    for node in graph.program.graph.nodes:
        if node.name in names:
            name = graph.first_names[names[node.name].removeprefix("network.")]
            readers[parameters[name]] |= set(node.users)
    return readers


def _why_apart(
    tensors: Tensors, keys: Sequence[Mapping[str, Hashable]], member: nn.Module, fold: Fold
) -> str:
    """Return why a norm cannot become part of a layer; empty where it can.

    The keys of the rows decide: tensors without a key are shared by all, and equal keys are one tensor.
    """
    held, values = _held(member, fold), named_tensors(member)
    if len({values[name].dtype for name in held if name}) > 1:
        return "they have different precisions"
    keyed = set[str]().union(*keys)
    if keyed.isdisjoint(held):
        return ""
    if keyed.isdisjoint(held[:2]):
        # A layer that all members share runs once, and with the norms of each it would not.
        return "members share the layer and not the norm"
    stored = keyed.intersection(held) <= tensors.parts()[1].keys()
    return "" if stored and isinstance(tensors, Stacked) else "the layer's tensors are not stored row by row"


def _held(member: nn.Module, fold: Fold) -> list[str]:
    """The names of the layer's weight and bias, and of the norm's mean, variance, weight and bias."""
    names = {id(tensor): name for name, tensor in named_tensors(member).items()}
    layer, norm = map(member.get_submodule, fold)
    held = (layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    return [names.get(id(tensor), "") for tensor in held]


def _fold_code(module: nn.Module, fold: Fold) -> None:
    layer, norm = map(module.get_submodule, fold)
    if layer.bias is None:
        layer.bias = nn.Parameter(torch.empty_like(norm.running_mean))
    norm.__class__ = nn.Identity  # whoever holds the norm holds it still, with all it says of itself


@torch.no_grad()
def _fold_tensors(tensors: Tensors, member: nn.Module, fold: Fold) -> None:
    """Put the product of layer and norm in place of the layer's tensors, once or for each member."""
    held, norm = _held(member, fold), member.get_submodule(fold[1])
    shared, own = tensors.parts()
    sizes = [len(own[name]) for name in held if name in own]
    is_own = bool(sizes)

    def product(row: int) -> tuple[Tensor, Tensor]:
        values: list[Any] = [own[name][row] if name in own else shared.get(name) for name in held]
        weight, bias, mean, variance, scale, shift = values
        return fold_norm(weight, bias, Norm(mean, variance, float(norm.eps), scale, shift))  # type: ignore[arg-type]

    products = [product(row) for row in range(sizes[0] if is_own else 1)]
    for name, rows in zip((held[0], f"{fold[0]}.bias".lstrip(".")), zip(*products, strict=True), strict=True):
        if name in shared:
            uproot(tensors.shared, name)
        value = torch.stack(rows) if is_own else rows[0]
        plant(tensors.own if is_own else tensors.shared, name, nn.Parameter(value, requires_grad=False))


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


def _put_channels_last(tensors: Tensors, member: nn.Module) -> None:
    chosen = {id(weight) for weight in _convolutions(member)}
    names = {name for name, tensor in named_tensors(member).items() if id(tensor) in chosen}
    for tree, axes in ((tensors.own, (0, 1, 3, 4, 2)), (tensors.shared, (0, 2, 3, 1))):
        for name, tensor in named_tensors(tree).items():
            if name in names:
                tensor.data = reorder(tensor.data, axes)
