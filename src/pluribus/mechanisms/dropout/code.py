"""Code with kept dropout: a row is a seed from which all dropout masks of a run follow."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.dropout.kept import Draw
from pluribus.mechanisms.dropout.lowered import DropoutAsTensors, named_masks
from pluribus.mechanisms.members.caller import Caller, Context
from pluribus.mechanisms.members.code import Code, LoweredCode, plain_module
from pluribus.mechanisms.members.skeleton import Modes
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.torch_private import is_run_again


class KeptDropoutCode(Code):
    """The user's code with the dropout masks of a seed; the row None draws torch's own, as in training.

    Args:
        caller: Runs the code.
        owners: Names of the modules whose own code calls dropout.
        axes: Of each call of dropout, the axis of the samples.
    """

    def __init__(self, caller: Caller, owners: tuple[str, ...], axes: tuple[int | None, ...]) -> None:
        super().__init__(caller)
        self.owners, self.axes = owners, axes

    @property
    def is_random(self) -> bool:
        return True

    def call(self, tensors: dict[str, Tensor], row: int | None, inputs: Inputs, modes: Modes) -> Tensor:
        if row is None:
            return self.caller(tensors, inputs, modes)
        output = self.caller(tensors, inputs, modes, Draw(row, self.owners, self.axes))
        if is_run_again(output):
            raise InputError(
                "a kept random row cannot be run again during backward, however: the network uses "
                "gradient checkpointing. Use torch.no_grad(), or switch checkpointing off."
            )
        return output

    def with_caller(self, caller: Caller) -> "KeptDropoutCode":
        return KeptDropoutCode(caller, self.owners, self.axes)

    def as_module(self, tensors: Tensors, row: int) -> nn.Module:
        network = plain_module(self.caller, tensors, row)
        return InContext(network, Draw(row, self.owners, self.axes)).eval()

    def lowered(self, tensors: Tensors, module: nn.Module, inputs: Inputs) -> LoweredCode:
        masked = DropoutAsTensors(module, Draw(0, self.owners, self.axes), inputs)
        drawn = masked.drawn

        def of(rows: Sequence[int]) -> Iterator[dict[str, Tensor]]:
            for row, own in zip(rows, tensors.of(rows), strict=True):
                device = next(iter(own.values())).device
                masks = {name: mask.to(device) for name, mask in named_masks(drawn, row).items()}
                yield {f"network.{name}": tensor for name, tensor in own.items()} | masks

        def keys(row: int) -> dict[str, Hashable]:
            own = {f"network.{name}": key for name, key in tensors.keys(row).items()}
            return own | {f"mask_{call}": row for call in range(len(drawn))}

        return LoweredCode(masked, of, keys, prefix="network.")


class InContext(nn.Module):
    """A network that always runs in a context, such as that of kept dropout masks."""

    def __init__(self, network: nn.Module, context: Context) -> None:
        super().__init__()
        self.network, self.context = network, context

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the prediction, `[batch, ...]`."""
        with self.context(self.network, Inputs(args, kwargs).batch):
            outputs: Tensor = self.network(*args, **kwargs)
        return outputs
