"""Train on one CPU without Lightning Fabric, whose import takes seconds in every process."""

import importlib.util
import os
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

PRECISIONS = ("32-true", "32", 32)
LAUNCHED = frozenset({"WORLD_SIZE", "LT_CLI_USED"})
"""Environment variables that launchers of several processes set."""

Module = TypeVar("Module", bound=nn.Module)


@final
class OneCPU:
    """The part of Fabric's interface that the training loop uses, for one process on the CPU in float32."""

    device = torch.device("cpu")
    global_rank = 0
    world_size = 1
    is_global_zero = True

    def setup(self, module: Module, optimizer: Optimizer) -> tuple[Module, Optimizer]:
        """Move the module to the CPU."""
        return module.to(self.device), optimizer

    def backward(self, loss: Tensor) -> None:
        """Compute gradients."""
        loss.backward()  # type: ignore[no-untyped-call]

    def clip_gradients(self, module: nn.Module, optimizer: Optimizer, max_norm: float) -> None:
        """Scale the gradients of the optimizer's parameters down to a norm."""
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        # As Fabric does: an infinite gradient raises instead of becoming NaN weights.
        nn.utils.clip_grad_norm_(parameters, max_norm, error_if_nonfinite=True)


def is_enough(accelerator: str, devices: Any, precision: Any) -> bool:
    """Return whether `OneCPU` trains exactly as Fabric with these arguments would."""
    plain = (accelerator in ("auto", "cpu"), devices in (1, "1"), precision in PRECISIONS)
    launched = not LAUNCHED.isdisjoint(os.environ)
    if launched or not all(plain):
        return False
    # With `auto`, Fabric takes a GPU or TPU where there is one.
    return accelerator == "cpu" or not _has_accelerator()


def _has_accelerator() -> bool:
    """Return whether Fabric's `auto` may choose something else than the CPU."""
    gpu = torch.cuda.is_available()
    apple = torch.backends.mps.is_available()
    # A TPU is seen only by importing torch_xla, which Fabric does.
    tpu = importlib.util.find_spec("torch_xla") is not None
    return any((gpu, apple, tpu))
