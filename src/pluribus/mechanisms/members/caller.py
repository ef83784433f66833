"""Caller: runs the user's code with the tensors of a member."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import InputError, PluribusError
from pluribus.mechanisms.members.cache import Cache
from pluribus.mechanisms.members.skeleton import Loan, Modes, Skeletons, blank, modes_of
from pluribus.mechanisms.network.error_context import explain_failure
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.outputs import Output, select_output
from pluribus.mechanisms.network.torch_private import write_count

Run = Callable[[Any, Inputs], Tensor]
"""Runs a filled module where it is not simply called."""
Context = Callable[[nn.Module, int], AbstractContextManager[Any]]
"""Returns the context in which a module runs on a batch of some size."""

CAUGHT = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
)
"""What a network raises for inputs that do not fit, or under vmap."""


class Caller:
    """Calls the user's code; safe for several threads at once in eval mode, where it writes nothing.

    Args:
        module: The network; only its code is kept.
        output: What of the returned values is the prediction.
        inside: The name of the user's own network inside of `module`; empty where it is all of it.

    Attributes:
        module: The code, without values.
        modes: The mode of each module as `train` set it.
        eval_modes: All of them in eval mode.
        cache: What was read of the network, by name.
    """

    def __init__(self, module: nn.Module, output: Output = None, inside: str = "") -> None:
        self.module, self.output, self.inside = blank(module), output, inside
        self.modes = modes_of(self.module)
        self.eval_modes: Modes = (False,) * len(self.modes)
        self.cache = Cache()
        self._skeletons = Skeletons(self.module)
        self._learnt = Cache()

    @property
    def user_module(self) -> nn.Module:
        """The user's own network, without values."""
        return self.module.get_submodule(self.inside)

    def train(self, mode: bool) -> None:
        """Put the code into train or eval mode."""
        if any(one != mode for one in self.modes):
            self.module.train(mode)
            self.modes = modes_of(self.module)

    def __call__(
        self,
        tensors: Mapping[str, Tensor],
        inputs: Inputs,
        modes: Modes,
        context: Context | None = None,
        run: Run | None = None,
    ) -> Tensor:
        """Return the prediction of the code with these tensors on one batch, `[batch, ...]`.

        Args:
            tensors: All of them, by name. Train mode writes statistics into them.
            inputs: One batch.
            modes: The mode of each module.
            context: What surrounds the run.
            run: How the module runs where it is not simply called.
        """
        loan, learns = self._skeletons.borrow(modes), any(modes)
        given = tensors if learns else self._protected(tensors, loan)
        module = loan.skeleton.fill(given)
        with nullcontext() if context is None else context(module, inputs.batch):
            output = self.call_module(module, inputs, run)
        if learns:
            loan.skeleton.collect(tensors)
        elif "written" not in self._learnt:
            self._learnt["written"] = _written_buffers(given, tensors)
        # Backward may run the code again: the skeleton is lent until the graph is gone.
        loan.keep_with(output)
        return output

    def call_module(self, module: nn.Module, inputs: Inputs, run: Run | None = None) -> Tensor:
        """Return the prediction of a module on one batch; its errors tell the layer that failed.

        Code that writes into its inputs gets copies of them, so that all members see the same.
        """
        kind = ("writes inputs", module.training, torch.is_grad_enabled())
        counts = not torch.is_inference_mode_enabled()  # there tensors do not count what is written
        given = inputs.copy() if not counts or self._learnt.get(kind, True) else inputs
        before = given.versions() if counts else []
        try:
            returned = run(module, given) if run else module(*given.args, **given.keywords)
        except (PluribusError, torch.OutOfMemoryError):
            raise
        except CAUGHT as error:
            own = module.get_submodule(self.inside)
            raise InputError(explain_failure(module, own, inputs, error)) from error
        if counts:
            self._learnt.setdefault(kind, given.versions() != before)
        return self.prediction(returned, inputs)

    def prediction(self, returned: Any, inputs: Inputs) -> Tensor:
        """Return the prediction among what the code returned."""
        outputs = select_output(returned, self.output)
        check_batch(outputs.shape, inputs)
        return outputs

    def borrow(self, modes: Modes) -> Loan:
        """Return a skeleton in these modes that nobody else uses."""
        return self._skeletons.borrow(modes)

    def _protected(self, tensors: Mapping[str, Tensor], loan: Loan) -> Mapping[str, Tensor]:
        """Return the tensors with copies of the buffers that the code writes into in eval mode.

        Which these are is seen in the first run, where all buffers are copies.
        """
        names = self._learnt.get("written")
        if names is None:
            names = loan.skeleton.buffer_names()
        return {**tensors, **{name: tensors[name].clone() for name in names}} if names else tensors


def check_batch(shape: torch.Size, inputs: Inputs) -> None:
    """Raise where an output `[batch, ...]` has not one entry for each sample."""
    if not shape or shape[0] != inputs.batch:
        raise InputError(
            f"the network must return one row per sample, {inputs.batch} here, got shape {tuple(shape)}. "
            "Pick another value with convert(..., output=...). Axis 0 of inputs is the batch: a single "
            "sample is x[None]."
        )


def _written_buffers(copies: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the names of the copied tensors that a run wrote into."""
    found = set[str]()
    for name, copied in copies.items():
        if copied is tensors[name]:
            continue
        # Tensors made in inference mode do not count what is written into them.
        counts = not copied.is_inference()
        if (counts and write_count(copied) > 0) or (not counts and not torch.equal(copied, tensors[name])):
            found.add(name)
    return frozenset(found)
