"""Freezing: fold norms into layers, and order memory, for inference alone.

A norm becomes part of the layer before it: BatchNorm in eval mode is affine in each channel, so that

    BN(W x + b) = s (W x + b - mean) + shift,    s = weight / sqrt(var + eps)

is a layer with weights s W and bias s (b - mean) + shift, up to rounding. This is done where the data
flow proves that the norm, and nothing else, reads what the layer computes. And narrow convolutions
get their channels last in memory, unless an operator depends on the order.
"""

import copy
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
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

# Layers whose output channels are axis 0 of the weight, as `fold_norm` needs; transposed convolutions differ.
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
    if not isinstance(members, WithPrior):
        return freeze_learnt(members, example)
    learnt, notes = freeze_learnt(members.learnt, example)
    prior, others = freeze_learnt(members.prior, example)
    # A prior network has the layers of a learnt one, so only its failures are news.
    for note in others:
        if "nothing" in note:
            notes.append(f"prior networks: {note}")
    return WithPrior(learnt, prior, members.scale), notes


def freeze_learnt(members: Members, example: Inputs | None) -> tuple[Members, list[str]]:
    """Return members without a prior for inference alone, and notes.

    Args:
        members: Copied.
        example: As for `freeze`.

    Returns:
        The members, unchanged where nothing can be folded or the result differs on the example.
    """
    plain = _resolved(members)
    row = plain.index.pick([0])[0]
    member = materialise(plain.code.caller.module, plain.tensors.of_one(row))
    narrow = _is_narrow(member)
    has_norms = any(type(layer) in NORMS for layer in member.modules())
    # Reading the data flow takes about a second: spare it where nothing can come of it.
    if not narrow and not has_norms:
        return plain, []
    try:
        network, graphs = _read_graphs(plain, member, example)
    except (ConversionError, UnreadableError) as error:
        return plain, [f"nothing folded: {error}"]
    folds, notes = _choose_folds(plain, member, find_folds(member, graphs))
    channels_last = narrow and not _depends_on_order(graphs)
    if not folds and not channels_last:
        return plain, notes
    folded = _folded(plain, member, folds)
    if channels_last:
        _put_channels_last(folded.tensors, member)
        notes.append("channels last in memory")
    # The rules above cannot foresee all of the user's code, so the result is compared on the example.
    rows = plain.index.rows(training=False)
    why = prove(
        lambda: run_slowly(folded, rows, network.example.copy()),
        lambda: run_slowly(plain, rows, network.example.copy()),
    )
    if why:
        return plain, [f"nothing folded: {why}"]
    return folded, notes


def _read_graphs(members: Members, member: nn.Module, example: Inputs | None) -> tuple[Network, list[Graph]]:
    """Return one member as a network, and its data flow in every mode that rows run in.

    Args:
        members: Whose code runs.
        member: One of them as a module.
        example: One input, or None.

    Raises:
        ConversionError, UnreadableError: The code does not run on the example, or cannot be exported.
    """
    if example is not None:
        example = example.to(next(member.parameters()).device)
    network = Network(member, example)
    # Code with kept dropout runs some layers in train mode, so a fold must hold in both modes.
    modes = [False, True] if members.code.is_random else [False]
    return network, [network.graph(training) for training in modes]


def _depends_on_order(graphs: Sequence[Graph]) -> bool:
    """Return whether an operator, such as `view`, depends on the order of channels in memory."""
    used = set[str]()
    for graph in graphs:
        used.update(operation.operator for operation in graph.operations())
    return not used.isdisjoint(MEMORY_ORDER)


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
    """Return members of these parts that are marked as frozen and are in eval mode."""
    frozen = Members(index.requires_grad_(False), tensors, code, members.lowers)
    frozen.frozen = True
    return frozen.eval()


def _with_module(code: Code, module: nn.Module) -> Code:
    """Return the code with another module, and with a cache of its own."""
    return code.with_caller(Caller(module, code.caller.output, code.caller.inside))


def _choose_folds(members: Members, member: nn.Module, found: Sequence[Fold]) -> tuple[list[Fold], list[str]]:
    """Return the norms that become part of a layer, and a note on each that was found.

    Args:
        members: All members.
        member: One of them as a module.
        found: The layers and norms that the data flow allows to fold.
    """
    folds, notes = list[Fold](), list[str]()
    keys = [members.tensors.keys(row) for row in members.index.rows(training=False)]
    for layer, norm in found:
        into = f"part of {layer or 'the network itself'}"
        why = _why_apart(members.tensors, keys, member, (layer, norm))
        if why:
            notes.append(f"{norm} is not {into}: {why}")
        else:
            notes.append(f"{norm} is {into}")
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
    """Return the norms that in all of these data flows follow a layer directly and alone.

    Args:
        module: The network.
        graphs: Its data flow in eval mode, and in train mode if rows run code of that mode too.
    """
    found = [set(_folds_of(module, graph)) for graph in graphs]
    return sorted(set.intersection(*found))


def _folds_of(module: nn.Module, graph: Graph) -> Iterator[Fold]:
    """Yield the norms that follow a layer directly and alone in one data flow.

    Args:
        module: The network.
        graph: Its data flow.
    """
    names = {layer: name for name, layer in module.named_modules()}
    runs = _runs_by_layer(module, graph)
    readers = _readers(module, graph)
    for norm, name in names.items():
        # Without stored statistics a norm depends on the batch in eval mode too, and is not affine.
        if type(norm) not in NORMS or norm.running_mean is None:
            continue
        layer = _layer_before(runs[norm], runs)
        if layer is None:
            continue
        # In eval mode a norm that uses the batch is not affine. In train mode all do, and the fold is still
        # right, as rows run norms with their stored statistics.
        uses_batch = any(run.argument("training") for run in runs[norm])
        if uses_batch and not graph.training:
            continue
        if _is_alone(layer, runs[layer], runs[norm], readers):
            yield names[layer], name


def _runs_by_layer(module: nn.Module, graph: Graph) -> dict[nn.Module, list[Operation]]:
    """Map each layer and norm to the operations it runs, in their order; empty for all other modules."""
    layers = dict(module.named_modules(remove_duplicate=False))
    runs = defaultdict[nn.Module, list[Operation]](list)
    for operation in graph.operations():
        if operation.operator in ("batch_norm", *OPERATORS.values()):
            runs[layers[operation.layer]].append(operation)
    return runs


def _layer_before(
    norms: Sequence[Operation], runs: Mapping[nn.Module, Sequence[Operation]]
) -> nn.Module | None:
    """Return the layer whose runs are exactly the inputs of these runs of a norm; None if there is none.

    Args:
        norms: The runs of the norm.
        runs: The runs of all layers.
    """
    read = [run.argument("input") for run in norms]
    # A norm that never runs would match every layer that never runs.
    if not read:
        return None
    for layer, operations in runs.items():
        if type(layer) not in OPERATORS:
            continue
        # Each run of the layer must be read by one run of the norm, in the same order.
        computed = [operation.node for operation in operations]
        if computed == read:
            return layer
    return None


def _is_alone(
    layer: nn.Module,
    runs: Sequence[Operation],
    norms: Sequence[Operation],
    readers: Mapping[nn.Parameter, set[Node]],
) -> bool:
    """Return whether the norm alone reads the layer's values, and the layer alone its own parameters.

    Args:
        layer: The layer before the norm.
        runs: The layer's operations.
        norms: The norm's operations, one for each of the layer's.
        readers: By parameter, the operations that read it.
    """
    nodes = {run.node for run in runs}
    # Another reader of the weight, as a tied output layer, would get the folded one.
    for parameter in layer.parameters():
        if readers[parameter] != nodes:
            return False
    # Another reader of the values, as a residual, needs them without the norm.
    for run, norm in zip(runs, norms, strict=True):
        if set(run.node.users) != {norm.node}:
            return False
    # Only then are channels axis 1, which the norm scales: Linear on a sequence has them last.
    return all(node.meta["val"].ndim == layer.weight.ndim for node in nodes)


def _readers(module: nn.Module, graph: Graph) -> dict[nn.Parameter, set[Node]]:
    """Map each parameter to the operations that read it."""
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

    Args:
        tensors: The tensors of all rows.
        keys: The keys of each row.
        member: One member as a module.
        fold: The layer and the norm.
    """
    held, values = _held(member, fold), named_tensors(member)
    # Folding would round the norm to the layer's precision.
    precisions = {values[name].dtype for name in held if name}
    if len(precisions) > 1:
        return "they have different precisions"
    keyed = set[str]().union(*keys)
    layer_differs = not keyed.isdisjoint(held[:2])
    norm_differs = not keyed.isdisjoint(held[2:])
    if not layer_differs and not norm_differs:
        return ""
    if not layer_differs:
        # A layer that all members share runs once, and with the norms of each it would not.
        return "members share the layer and not the norm"
    # The product is computed row by row, so every tensor with a key must lie in a stack of rows.
    own = tensors.parts()[1]
    stored = keyed.intersection(held) <= own.keys()
    if stored and isinstance(tensors, Stacked):
        return ""
    return "the layer's tensors are not stored row by row"


def _held(member: nn.Module, fold: Fold) -> list[str]:
    """Return the names of the layer's weight and bias, and of the norm's mean, variance, weight and bias."""
    names = {id(tensor): name for name, tensor in named_tensors(member).items()}
    layer, norm = map(member.get_submodule, fold)
    held = (layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.weight, norm.bias)
    return [names.get(id(tensor), "") for tensor in held]


def _fold_code(module: nn.Module, fold: Fold) -> None:
    """Give the layer a bias, and make the norm do nothing."""
    layer, norm = map(module.get_submodule, fold)
    if layer.bias is None:
        layer.bias = nn.Parameter(torch.empty_like(norm.running_mean))
    # The user's code may hold the norm elsewhere, or read its attributes: the object must stay.
    norm.__class__ = nn.Identity


@torch.no_grad()
def _fold_tensors(tensors: Tensors, member: nn.Module, fold: Fold) -> None:
    """Put the product of layer and norm in place of the layer's tensors, once or for each member.

    Args:
        tensors: Changed in place.
        member: One member as a module, not folded.
        fold: The layer and the norm.
    """
    held, norm = _held(member, fold), member.get_submodule(fold[1])
    shared, own = tensors.parts()
    sizes = [len(own[name]) for name in held if name in own]
    is_own = bool(sizes)
    weights, biases = list[Tensor](), list[Tensor]()
    for row in range(sizes[0] if is_own else 1):
        values: list[Any] = [own[name][row] if name in own else shared.get(name) for name in held]
        weight, bias, mean, variance, scale, shift = values
        numbers = Norm(mean, variance, float(norm.eps), scale, shift)  # type: ignore[arg-type]
        folded_weight, folded_bias = fold_norm(weight, bias, numbers)
        weights.append(folded_weight)
        biases.append(folded_bias)
    bias_name = f"{fold[0]}.bias".lstrip(".")
    for name, rows in ((held[0], weights), (bias_name, biases)):
        # A tensor that was shared may have become one of each member.
        if name in shared:
            uproot(tensors.shared, name)
        tree = tensors.own if is_own else tensors.shared
        value = torch.stack(rows) if is_own else rows[0]
        plant(tree, name, nn.Parameter(value, requires_grad=False))


def _convolutions(module: nn.Module) -> list[Tensor]:
    """Return the weights of the convolutions that are in use."""
    found = list[Tensor]()
    for layer in module.modules():
        # Layers behind the deepest exit that was kept have empty weights.
        if isinstance(layer, nn.Conv2d) and layer.weight.numel():
            found.append(layer.weight)
    return found


def _is_narrow(module: nn.Module) -> bool:
    """Return whether convolutions are so narrow that a CPU runs them faster with channels last."""
    weights = _convolutions(module)
    devices = {weight.device.type for weight in weights}
    # Other devices choose the order of memory by themselves.
    if devices != {"cpu"}:
        return False
    mean_size = sum(map(Tensor.numel, weights)) / len(weights)
    return mean_size <= NARROW


def _put_channels_last(tensors: Tensors, member: nn.Module) -> None:
    """Store the weights of convolutions with their channels last."""
    chosen = {id(weight) for weight in _convolutions(member)}
    names = {name for name, tensor in named_tensors(member).items() if id(tensor) in chosen}
    # A stack has the axis of members first: [members, out, in, height, width].
    for tree, axes in ((tensors.own, (0, 1, 3, 4, 2)), (tensors.shared, (0, 2, 3, 1))):
        for name, tensor in named_tensors(tree).items():
            if name in names:
                tensor.data = reorder(tensor.data, axes)
