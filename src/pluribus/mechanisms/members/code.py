"""Code: how the user's code is called for a member."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.skeleton import Modes, materialise
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.outputs import Output, select_output


@dataclass(frozen=True)
class LoweredCode:
    """Code in which everything that tells rows apart is a tensor, as a plan needs it.

    Attributes:
        module: The code of one row in eval mode.
        of: Yields the complete tensors of rows, by their names in `module`.
        keys: Maps each tensor that rows have for themselves to a key.
        prefix: What names in `module` begin with that are the network's.
    """

    module: nn.Module
    of: Callable[[Sequence[Row]], Iterator[dict[str, Tensor]]]
    keys: Callable[[Row], dict[str, Hashable]]
    prefix: str = ""


class Code(ABC):
    """How rows are run: plainly, with kept dropout masks, with masks on channels, or with exits.

    Args:
        caller: Runs the code.
    """

    one_pass: ClassVar[bool] = False
    """Whether one run gives all rows."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    @property
    def forward(self) -> Callable[..., Any]:
        """The `forward` of the user's network."""
        return self.caller.user_module.forward

    @abstractmethod
    def call(self, tensors: dict[str, Tensor], row: Row, inputs: Inputs, modes: Modes) -> Tensor:
        """Return the prediction of one row, or of a mixed batch where `row` is None, `[batch, ...]`."""

    @abstractmethod
    def with_caller(self, caller: Caller) -> "Code":
        """Return the same way of running other code, in which layers were folded."""

    @abstractmethod
    def as_module(self, tensors: Tensors, row: Row) -> nn.Module:
        """Return one row as a plain module in eval mode with copies of its tensors."""

    def lowered(self, tensors: Tensors, module: nn.Module, inputs: Inputs) -> LoweredCode:
        """Return the code for a plan.

        Args:
            tensors: Of all rows.
            module: One row as a plain module.
            inputs: One batch to run it with.
        """
        return LoweredCode(module, tensors.of, tensors.keys)

    def keep(self, tensors: Tensors, rows: Sequence[Row], merge: bool = False) -> "tuple[Code, Tensors]":
        """Return code and tensors without what none of these rows needs.

        Args:
            tensors: Of all rows.
            rows: The rows of eval mode.
            merge: Whether inputs that are the same in prediction become one, for inference alone.
        """
        return self, tensors

    @property
    def is_random(self) -> bool:
        """Return whether rows differ by random numbers and not by tensors alone."""
        return False


class PlainCode(Code):
    """The user's code as it is: a row is nothing but its tensors."""

    @classmethod
    def of(cls, module: nn.Module, output: Output = None) -> "PlainCode":
        """Return the code of a network."""
        return cls(Caller(module, output))

    def call(self, tensors: dict[str, Tensor], row: Row, inputs: Inputs, modes: Modes) -> Tensor:
        return self.caller(tensors, inputs, modes)

    def with_caller(self, caller: Caller) -> "PlainCode":
        return PlainCode(caller)

    def as_module(self, tensors: Tensors, row: Row) -> nn.Module:
        return plain_module(self.caller, tensors, row)


class Select:
    """A forward hook that returns the prediction alone."""

    def __init__(self, output: Output) -> None:
        self.output = output

    def __call__(self, module: nn.Module, args: Any, returned: Any) -> Tensor:
        return select_output(returned, self.output)


def plain_module(caller: Caller, tensors: Tensors, row: Row) -> nn.Module:
    """Return a module of the user's class with copies of a row's tensors, which returns the prediction."""
    with torch.no_grad():
        network = materialise(caller.module, tensors.of_one(row)).eval()
    network.register_forward_hook(Select(caller.output))
    return network
