"""Named tensors in a tree of modules: the store of what members share and of what each has for itself."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from pluribus.mechanisms.network.fresh import fresh_modules
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.torch_private import child_table


def named_tensors(tree: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers of a module by name, tied ones once."""
    return {**dict(tree.named_parameters()), **dict(tree.named_buffers())}


def plant(tree: nn.Module, name: str, tensor: Tensor, persistent: bool = True) -> None:
    """Register a tensor under a dotted name, with a module for each part of it."""
    *path, last = name.split(".")
    for part in path:
        if part not in child_table(tree):
            tree.add_module(part, nn.Module())
        tree = tree.get_submodule(part)
    if isinstance(tensor, nn.Parameter):
        tree.register_parameter(last, tensor)
    else:
        tree.register_buffer(last, tensor, persistent)


def uproot(tree: nn.Module, name: str) -> None:
    """Remove a parameter or a buffer."""
    path, _, last = name.rpartition(".")
    delattr(tree.get_submodule(path), last)


def divide(network: Network, own: Mapping[str, Tensor]) -> tuple[nn.Module, nn.Module]:
    """Return trees of the tensors that all members share and of those that each has for itself.

    Args:
        network: Its tensors are copied. Whether they are trained and saved is taken from it.
        own: By name, `[..., *shape]` in place of the network's tensor.
    """
    shared, apart = nn.Module(), nn.Module()
    persistent = network.persistent()
    for name, tensor in network.tensors().items():
        tree, value = shared, tensor.detach().clone()
        if name in own:
            tree, value = apart, reorder(own[name], memory_order(tensor))
        if isinstance(tensor, nn.Parameter):
            value = nn.Parameter(value, tensor.requires_grad)
        plant(tree, name, value, persistent=name in persistent)
    return shared, apart


def take(tree: nn.Module, kept: Mapping[str, Sequence[int]]) -> None:
    """Leave of every tensor of a tree only these positions of axis 0, in this order."""
    for name, tensor in named_tensors(tree).items():
        tensor.data = reorder(tensor.data[list(kept[name])], memory_order(tensor[0]))


def columns_of(tensor: Tensor) -> Sequence[Tensor]:
    """Return what lies along axis 0, piece by piece.

    Parameters are taken apart by one unbind, whose backward stacks once; slices would each add a zero of
    the full size.
    """
    # Buffers are updated in place, which torch allows on single views only.
    if not tensor.requires_grad:
        return [tensor[row] for row in range(len(tensor))]
    if tensor.is_contiguous():
        return tensor.unbind()
    # Taken apart in the order of memory, so that backward stacks in that order too.
    axes = memory_order(tensor[0])
    inverse = sorted(range(tensor.ndim), key=axes.__getitem__)
    return [row.permute([axis - 1 for axis in inverse[1:]]) for row in tensor.permute(axes).unbind()]


def memory_order(row: Tensor) -> tuple[int, ...]:
    """Return the axes of `[members, ...]`, slowest first, where every member lies in memory as `row` does."""
    axes = sorted(range(row.ndim), key=row.stride, reverse=True)
    return (0, *(axis + 1 for axis in axes))


def reorder(tensor: Tensor, axes: Sequence[int]) -> Tensor:
    """Return the same tensor, in memory with these axes, slowest first."""
    inverse = sorted(range(len(axes)), key=axes.__getitem__)
    return tensor.permute(*axes).contiguous().permute(*inverse)


def fresh_stack(
    network: Network, count: int, seed: int, names: set[str]
) -> tuple[dict[str, Tensor], list[str]]:
    """Return the named tensors of fresh modules, `[count, ...]` each.

    Large networks are drawn where they stay: a stack of other tensors would take their memory twice.

    Returns:
        The tensors, and the second result of `fresh_modules`.
    """
    stacks = dict[str, Tensor]()
    for name, tensor in network.tensors().items():
        if name in names:
            stack = torch.empty((count, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
            # Initialisers draw in the order of memory.
            stacks[name] = reorder(stack, memory_order(tensor))
    modules, redrawn = fresh_modules(network, count, seed, stacks)
    for position, module in enumerate(modules):
        tensors = named_tensors(module)
        for name, stack in stacks.items():
            if tensors[name].data_ptr() != stack[position].data_ptr():
                stack[position].copy_(tensors[name].detach())
    return stacks, redrawn


def stack_modules(modules: Sequence[nn.Module], names: set[str]) -> dict[str, Tensor]:
    """Return the named tensors of modules of one architecture, `[modules, ...]` each."""
    columns = [named_tensors(module) for module in modules]
    return {name: torch.stack([column[name].detach() for column in columns]) for name in names}
