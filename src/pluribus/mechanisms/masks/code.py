"""Code with masks on channels, which are tensors of the layers that read through them."""

from torch import Tensor, nn

from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.code import Code, plain_module
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.skeleton import Modes
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.network.inputs import Inputs


class MaskedCode(Code):
    """The user's code, in which hooks multiply inputs of layers by masks of ones and zeros.

    Args:
        caller: Runs the code.
        masks: Names of the tensors that are masks.
        align: What widths of members that are cut out by their masks are rounded to.
    """

    def __init__(self, caller: Caller, masks: frozenset[str], align: int) -> None:
        super().__init__(caller)
        self.masks, self.align = masks, align

    def call(self, tensors: dict[str, Tensor], row: Row, inputs: Inputs, modes: Modes) -> Tensor:
        return self.caller(tensors, inputs, modes)

    def with_caller(self, caller: Caller) -> "MaskedCode":
        return MaskedCode(caller, self.masks, self.align)

    def as_module(self, tensors: Tensors, row: Row) -> nn.Module:
        return plain_module(self.caller, tensors, row)
