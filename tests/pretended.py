"""A pretended device: real numbers on the CPU that claim to be elsewhere, and operators that mind it.

torch without a GPU cannot run on one, but most faults of that kind need none: a tensor that was made on the
CPU meets one of the network, or a result comes back on the CPU. Under `Pretend` every operator checks that
its tensors are on one device, as CUDA does, and its results are on that device.

    with Pretend() as pretend:
        ensemble.to(DEVICE)
        ensemble(x.to(DEVICE)).device    # pretended:0
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend


class Backend:
    """The functions that torch calls of a kind of device."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def manual_seed_all(self, seed: int) -> None:
        return None

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


# torch has one kind of device for backends outside of it, which needs no driver (torch 2.9).
_setup_privateuseone_for_python_backend("pretended", backend_module=Backend())
DEVICE = torch.device("pretended", 0)
CPU = torch.device("cpu")
COPIES = ("aten._to_copy", "aten.copy_", "aten._local_scalar_dense", "aten.lift_fresh")
"""Operators that may see two devices."""
INDEXED = ("aten.index", "aten.index_put", "aten.index_put_", "aten._index_put_impl_")
"""Operators that take indices on the CPU too."""


def lstm_cell(
    inputs: Tensor, hidden: Tensor, cell: Tensor, *biases: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute a step of an LSTM from its gates; torch has this operator for GPUs alone."""
    gates = inputs + hidden
    for bias in biases:
        gates = gates if bias is None else gates + bias
    enter, forget, new, leave = gates.chunk(4, -1)
    after = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * after.tanh(), after, gates


# Above the gradients, so that torch derives them from the steps.
OPERATORS = torch.library.Library("aten", "IMPL")
OPERATORS.impl("_thnn_fused_lstm_cell", lstm_cell, "AutogradPrivateUse1")


class Pretended(Tensor):
    """A tensor of the CPU that claims to be on `DEVICE`."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Pretended":
        made: Pretended = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
            requires_grad=held.requires_grad,
        )
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Pretended({self.held})"

    def __deepcopy__(self, memo: dict[int, Any]) -> "Pretended":
        copied = Pretended(self.held.detach().clone())
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied.requires_grad_(self.requires_grad)

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class Pretend(TorchDispatchMode):
    """Let tensors be made on, and moved to, the pretended device."""

    def __enter__(self) -> "Pretend":
        # `torch.tensor([1], device=...)` moves its numbers by an operator that modes can see.
        torch._C._set_only_lift_cpu_tensors(True)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        torch._C._set_only_lift_cpu_tensors(False)
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator on the CPU, and pretend that it ran where its tensors are."""
    name = str(func).rpartition(".")[0]
    tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
    device = where(name, tensors, kwargs)
    generator = kwargs.get("generator")
    if generator is not None and generator.device != device:
        raise RuntimeError(f"Expected a {device.type!r} device type for generator but found 'cpu'")
    if "device" in kwargs:
        kwargs = {**kwargs, "device": CPU}
    given, named = tree_map(lambda one: one.held if isinstance(one, Pretended) else one, (args, kwargs))
    out = func(*given, **named)
    if name.endswith("_") and isinstance(args[0] if args else None, Tensor) and out is given[0]:
        return args[0]
    if device == CPU:
        return out
    return tree_map(lambda one: Pretended(one) if type(one) is Tensor or type(one) is Pretended else one, out)


def where(name: str, tensors: list[Tensor], kwargs: dict[str, Any]) -> torch.device:
    """Return the device of an operator's result; raise if its tensors are on several."""
    if kwargs.get("device") is not None:
        asked = torch.device(kwargs["device"])
        return DEVICE if asked.type == DEVICE.type else CPU
    devices = {DEVICE if isinstance(one, Pretended) else CPU for one in tensors}
    if name.startswith(COPIES):
        return DEVICE if tensors and isinstance(tensors[0], Pretended) else CPU
    if len(devices) == 2:
        others = [one for one in tensors if not isinstance(one, Pretended)]
        indices = name.startswith(INDEXED) and isinstance(tensors[0], Pretended)
        # A number may stand on the CPU, and so may indices.
        if not indices and any(one.ndim for one in others):
            shapes = [list(one.shape) for one in others if one.ndim]
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"{DEVICE} and cpu! {name} got {shapes} on the cpu"
            )
    return DEVICE if DEVICE in devices else CPU
