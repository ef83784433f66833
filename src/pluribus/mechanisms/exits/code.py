"""Code with exits: one run of one network gives all rows, each a pair of an input and a depth."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from pluribus.errors import InputError
from pluribus.mechanisms.exits.tapped import Pair, Tapped, Watch
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.code import Code, LoweredCode
from pluribus.mechanisms.members.skeleton import Modes, materialise
from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network


class TappedCode(Code):
    """A `Tapped` network, which picks the prediction itself."""

    one_pass: ClassVar[bool] = True

    @classmethod
    def of(cls, module: Tapped) -> "TappedCode":
        """Return the code of a network with exits."""
        return cls(Caller(module, inside="network"))

    def call(self, tensors: dict[str, Tensor], row: Pair, inputs: Inputs, modes: Modes) -> Tensor:
        return self.call_all(tensors, [row], [inputs], modes)[0]

    def call_all(
        self,
        tensors: dict[str, Tensor],
        rows: Sequence[Pair],
        parts: Sequence[Inputs],
        modes: Modes,
        watch: Watch | None = None,
    ) -> Tensor:
        """Return the outputs of all rows, `[rows, batch, ...]`.

        Args:
            tensors: Of the network.
            rows: Pairs of an input and a depth.
            parts: One batch for every slot, or a single one that is put into all of them.
            modes: The mode of each module.
            watch: Called at each exit as soon as it is reached; it sees all outputs, and none are returned.
        """

        def run(module: Any, given: Inputs) -> Tensor:
            outputs: Tensor = module.run([given, *parts[1:]], rows, watch)
            return outputs if watch is None else outputs.new_empty(given.batch, 1)

        return self.caller(tensors, parts[0], modes, run=run).transpose(0, 1)

    def parts_of(self, rows: Sequence[Pair], inputs: Sequence[Inputs]) -> Sequence[Inputs]:
        """Return the batch of each slot, where each row has a batch."""
        slots = {slot: one for (slot, _), one in zip(rows, inputs, strict=True)}
        count = self.caller.module.inputs
        if not isinstance(count, int):
            raise InputError("a network with exits must have a number of inputs.")
        # A slot that no row answers for sees what the first row does.
        return [slots.get(slot, inputs[0]) for slot in range(count)]

    def with_caller(self, caller: Caller) -> "TappedCode":
        return TappedCode(caller)

    def as_module(self, tensors: Tensors, row: Pair) -> nn.Module:
        module = materialise(self.caller.module, tensors.of_one(row)).eval()
        assert isinstance(module, Tapped)
        module.keep([row])
        return OnePair(module).eval()

    def keep(
        self, tensors: Tensors, rows: Sequence[Pair], merge: bool = False
    ) -> tuple["TappedCode", Tensors]:
        values = tensors.of_one(rows[0])
        module = materialise(self.caller.module, values)
        assert isinstance(module, Tapped)
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(values[name].requires_grad)
        # A graph holds what it reads and nothing else, so that for inference nothing must be dropped here.
        module.keep(rows, drop=not merge)
        if merge:
            module.merge()
        return TappedCode.of(module), Stacked.of_network(Network(module), {})

    def lowered(self, tensors: Tensors, module: nn.Module, inputs: Inputs) -> LoweredCode:
        """Return the code of all pairs at once; the program has one row, `[batch, pairs, ...]`."""
        assert isinstance(module, Tapped)
        # The data flow is read to its end, though none of it is needed behind the deepest exit.
        module.fill_dropped()

        def of(rows: Sequence[Pair]) -> Iterator[dict[str, Tensor]]:
            for own in tensors.of(rows):
                yield {f"network.{name}": tensor for name, tensor in own.items()}

        return LoweredCode(AllPairs(module), of, lambda row: {}, prefix="network.")


class AllPairs(nn.Module):
    """All pairs that a network keeps, without an early end of the run."""

    def __init__(self, network: Tapped) -> None:
        super().__init__()
        self.network = network

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the predictions of all pairs for a sample that is in every slot, `[batch, pairs, ...]`."""
        return self.network.run_whole(Inputs(args, kwargs))


class OnePair(nn.Module):
    """One pair of a network that keeps this pair alone."""

    def __init__(self, network: Tapped) -> None:
        super().__init__()
        self.network = network

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the prediction of this exit for a sample that is in every slot, `[batch, ...]`."""
        outputs: Tensor = self.network(*args, **kwargs)
        return outputs[:, 0]
