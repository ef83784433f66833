"""The private names of torch that this library needs, in one place.

torch promises nothing about names that begin with an underscore. Every use of one goes through this
file, and `test_torch_private.py` states what is expected of each, so that a new version of torch fails
there, by name, and not somewhere inside a network. Written for torch 2.6 and later; tried with 2.13.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
from torch.fx import Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes

# torch has no public base class of its convolutions, norms with statistics and dropout layers.
Convolution = nn.modules.conv._ConvNd
NormBase = nn.modules.batchnorm._NormBase
BatchNorm = nn.modules.batchnorm._BatchNorm
Dropout = nn.modules.dropout._DropoutNd

# Flatten nested tuples, lists and dicts in the same order as torch.export does.
tree_flatten = pytree.tree_flatten
tree_leaves = pytree.tree_leaves
tree_unflatten = pytree.tree_unflatten

# Inside of it no dispatch mode of the caller, such as a FLOP counter, sees what runs.
without_dispatch_modes = _disable_current_modes

# Inside of it a tensor subclass is treated as a plain tensor, so that its own rules do not recurse.
without_subclass_rules = torch._C.DisableTorchFunctionSubclass

# The memory layout of tensors that oneDNN packed; they have sizes and a storage like dense ones.
MKLDNN_LAYOUT: torch.layout = torch._mkldnn  # type: ignore[attr-defined]

HELD = ("_parameters", "_buffers", "_modules")
"""Where a module keeps what it holds."""

HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

ORIGIN = ("stack_trace", "nn_module_stack", "source_fn_stack", "from_node")
"""What torch.export notes about the origin of an operator."""


def parameter_table(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return the dict in which a module holds its own parameters; None marks an absent one."""
    return module._parameters


def buffer_table(module: nn.Module) -> dict[str, Tensor | None]:
    """Return the dict in which a module holds its own buffers; None marks an absent one."""
    return module._buffers


def child_table(module: nn.Module) -> dict[str, nn.Module | None]:
    """Return the dict in which a module holds its children, one that is held twice under both keys."""
    return module._modules


def module_tables(module: nn.Module) -> list[dict[str, Any]]:
    """Return the dicts of a module's parameters, buffers and children; a scripted module has none."""
    found = [vars(module).get(name) for name in HELD]
    return [table for table in found if isinstance(table, dict)]


def own_tensors(module: nn.Module) -> list[Tensor]:
    """Return the parameters and buffers that a module holds itself."""
    held = [*parameter_table(module).values(), *buffer_table(module).values()]
    return [tensor for tensor in held if tensor is not None]


def flat_weights(module: nn.Module) -> list[Tensor | None]:
    """Return the list from which an RNN reads its weights, instead of its parameters; else an empty one."""
    return getattr(module, "_flat_weights", [])


def forward_pre_hooks(module: nn.Module) -> list[Any]:
    """Return what runs before the module's forward."""
    return list(module._forward_pre_hooks.values())


def has_hooks(module: nn.Module) -> bool:
    """Return whether calling the module runs more than its forward."""
    return any(getattr(module, name) for name in HOOK_TABLES)


def write_count(tensor: Tensor) -> int:
    """Return how often a tensor was written into; -1 in inference mode, which does not count."""
    return -1 if tensor.is_inference() else tensor._version


def has_storage(tensor: Tensor) -> bool:
    """Return whether a tensor has memory of its own; sparse and opaque ones have none."""
    return bool(torch._C._has_storage(tensor))


def is_run_again(output: Tensor) -> bool:
    """Return whether backward will run a part of the network again that ran without gradients.

    Reentrant checkpointing (`torch.utils.checkpoint(..., use_reentrant=True)`) does so. It leaves no
    other trace than the name of a node in the graph of gradients.
    """
    waiting, seen = [output.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        if node.name() == "CheckpointFunctionBackward":
            return True
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
    return False


def schema_of(target: Any) -> Any:
    """Return the schema of an operator: its arguments, and whether it writes; None for a Python function."""
    return getattr(target, "_schema", None)


def argument_names(target: Any) -> list[str]:
    """Return the names of an operator's arguments in their order; none for a Python function."""
    schema = schema_of(target)
    return [argument.name for argument in schema.arguments] if schema is not None else []


def operator_packet(operator: Any) -> Any:
    """Return the operator without its overload: `aten.add` for `aten.add.Tensor`."""
    return getattr(operator, "_overloadpacket", operator)


def with_generator(operator: Any) -> Any:
    """Return the overload of a random operator that takes a generator; None where there is none."""
    packet, name = operator_packet(operator), operator._overloadname
    for form in (name, "generator" if name == "default" else f"{name}_generator"):
        candidate = getattr(packet, form, None)
        if candidate is not None and "generator" in argument_names(candidate):
            return candidate
    return None


@contextmanager
def kept_random_state() -> Iterator[None]:
    """Keep torch.export from putting the global random state back to what it was at its start.

    It traces with tensors that have no values and draws nothing (torch 2.13), while other threads draw:
    putting the state back would replay their numbers. Call it with the process-wide lock held.
    """
    # Imported here, because it takes a second.
    from torch._functorch import aot_autograd

    tracing: Any = aot_autograd
    before = tracing.preserve_rng_state
    tracing.preserve_rng_state = nullcontext
    try:
        yield
    finally:
        tracing.preserve_rng_state = before


@contextmanager
def without_lines() -> Iterator[None]:
    """Keep torch.export from noting the lines of code that run an operator; before 2.13 it always does.

    Call it with the process-wide lock held.
    """
    config: Any = torch.fx.config
    before = getattr(config, "do_not_emit_stack_traces", False)
    config.do_not_emit_stack_traces = True
    try:
        yield
    finally:
        config.do_not_emit_stack_traces = before


def size_in_example(size: Any) -> Any:
    """Return the size that a symbolic size had in the example; other values as they are."""
    return size.node.hint if isinstance(size, torch.SymInt) else size


def is_free_size(size: Any) -> bool:
    """Return whether a size may differ from the example's; a symbol may stand for a known number."""
    return isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None


def module_stack(node: Node) -> list[tuple[str, str]]:
    """Return the modules that run a node, outermost first, each with its name and its class."""
    return [(str(name), str(kind)) for name, kind in node.meta.get("nn_module_stack", {}).values()]


def is_no_grad_region(target: Any) -> bool:
    """Return whether a node's function runs a graph under `torch.no_grad` or `torch.enable_grad` (2.13)."""
    return getattr(target, "_name", "") == "wrap_with_set_grad_enabled"


def mark_free_batch(tensor: Tensor) -> None:
    """Keep `torch.compile` from making code for this size of axis 0 alone."""
    # Imported here, because it takes a second.
    from torch import _dynamo

    _dynamo.mark_dynamic(tensor, 0)
