"""Ensemble: what `convert` returns."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from pluribus.binding import Binding
from pluribus.checkpoint import write_folder
from pluribus.conversion import Conversion
from pluribus.errors import InputError
from pluribus.execution.explain import Explanation, explain
from pluribus.execution.freeze import freeze
from pluribus.execution.run import Runner, uncompiled
from pluribus.likelihood import Likelihood
from pluribus.members import fork, join
from pluribus.method import Built, Method
from pluribus.network import Network
from pluribus.network.inputs import Inputs, inputs_of_batch
from pluribus.prediction import Prediction
from pluribus.settings import number, whole

Criterion = Callable[[Tensor, Tensor], Tensor]


class Ensemble(nn.Module):
    """Many networks in one. Made by `convert`, `load` and `from_checkpoints`.

    `ensemble(x)` is `[members, batch, ...]` in train and in eval mode: the first axis always says how
    many members there are.

    Attributes:
        method: The settings it was made with.
        likelihood: What its outputs mean.
        conversion: What became of every layer.
        binding: The tensors of all members.
        network: The class of the network it was made from.
        seed: Of the conversion.
    """

    def __init__(
        self,
        network: Network,
        method: Method,
        likelihood: Likelihood,
        built: Built,
        conversion: Conversion,
        selection: Sequence[Mapping[str, Any]],
        seed: int,
    ) -> None:
        super().__init__()
        self.method, self.likelihood, self.conversion = method, likelihood, conversion
        self.binding = built.binding
        self._no_decay = {f"binding.{name}" for name in built.no_decay}
        self.network, self.seed, self._selection = network.kind, seed, list(selection)
        self._example = network.given
        self._runner = Runner(network.module, network.output)
        self.training = self.binding.training = self._runner.module.training

    def train(self, mode: bool = True) -> Self:
        """Puts all members into train or eval mode; prior networks stay in eval mode."""
        self._runner.train(mode)
        return super().train(mode)

    @uncompiled
    def forward(
        self, *args: Any, members: Sequence[Any] | None = None, draws: int | None = None, **kwargs: Any
    ) -> Tensor:
        """The outputs of all members, `[members, batch, ...]`.

        Args:
            *args: The network's inputs.
            members: Exactly these rows, by their positions in eval mode, in the order given.
            draws: That many fresh random rows, for methods whose members are random.
            **kwargs: The network's keyword inputs.
        """
        return self._runner(self.binding, self._rows(members, draws), Inputs(args, kwargs))

    @uncompiled
    def loss(
        self,
        x: Any,
        y: Tensor,
        *,
        progress: float = 0.0,
        samples: int | None = None,
        criterion: Criterion | None = None,
    ) -> Tensor:
        """The method's training objective on one batch, a scalar: most often the mean of the members' losses.

        Args:
            x: The inputs: a tensor, a tuple, or a dict of keyword inputs.
            y: The targets, `[batch, ...]`.
            progress: How much of training is done, in [0, 1]; drives schedules.
            samples: The size of the training set, for methods with a prior term; the batch's.
            criterion: In place of the likelihood, a loss of one member's outputs and the targets,
                a scalar or one value per sample.
        """
        number("progress", progress, least=0)
        if progress > 1:
            raise InputError(f"progress must be at most 1, however: progress={progress!r}.")
        if samples is not None:
            whole("samples", samples)
        inputs, rows = Inputs.of(x), self._rows()
        if not isinstance(y, Tensor) or y.ndim == 0 or y.shape[0] != inputs.batch:
            came = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise InputError(f"targets must be a tensor for {inputs.batch} samples, however: {came}.")
        parts = self.method.parts(inputs.batch, len(rows)) if self.training else None
        if parts is None:
            mean = self._losses(self._runner(self.binding, rows, inputs), y, criterion).mean()
            return self.method.total(mean, len(rows))
        seen = [(row, part.to(y.device)) for row, part in zip(rows, parts, strict=True) if len(part)]
        outputs = self._runner.split(
            self.binding, [row for row, _ in seen], [inputs.take(part) for _, part in seen]
        )
        if criterion is None and len({output.shape[1:] for output in outputs}) == 1:
            order = torch.cat([part for _, part in seen])
            mean = self._losses(fork(torch.cat(outputs), 1), y[order], None).mean()
            return self.method.total(mean, len(rows))
        losses = [
            self._losses(fork(output, 1), y[part], criterion).mean() * (len(part) / inputs.batch)
            for output, (_, part) in zip(outputs, seen, strict=True)
        ]
        return self.method.total(torch.stack(losses).sum(), len(rows))

    def parameter_groups(self, lr: float, weight_decay: float = 0.0) -> list[dict[str, Any]]:
        """Parameter groups for an optimizer, with the method's exceptions from weight decay."""
        number("lr", lr, least=0)
        number("weight_decay", weight_decay, least=0)
        trained = [(name, p) for name, p in self.named_parameters() if p.requires_grad]
        groups = [
            {"params": [p for name, p in trained if (name in self._no_decay) == exempt], "lr": lr}
            | {"weight_decay": 0.0 if exempt else weight_decay}
            for exempt in (False, True)
        ]
        return [group for group in groups if group["params"]]

    def predict(self, x: Any, *, chunk: int | None = None, memory: int | None = None) -> Prediction:
        """What the ensemble says, in eval mode and without gradients.

        Args:
            x: The inputs: a tensor, a tuple, a dict of keyword inputs, or a loader of these, whose
                batches may carry targets, which are left out.
            chunk: At most that many samples at a time, to bound memory.
            memory: The most bytes of activations that may be alive at once; less than what the rows need
                one by one is refused with what is needed.
        """
        for name, value in (("chunk", chunk), ("memory", memory)):
            if value is not None:
                whole(name, value)
        with _evaluating(self), torch.no_grad():
            predictions = [
                self.likelihood.prediction(
                    self._runner(self.binding, self._rows(), inputs, memory), self.weights
                )
                for batch in self._batches(x)
                for inputs in batch.chunks(chunk)
            ]
        if not predictions:
            raise InputError("a loader must give at least one batch, however: it gave none.")
        return type(predictions[0]).concatenate(predictions)

    def explain(
        self,
        x: Any,
        *,
        members: Sequence[Any] | None = None,
        draws: int | None = None,
        memory: int | None = None,
    ) -> Explanation:
        """What the rows of `ensemble(x)` share in eval mode, where they part, and what that saves.

        Args:
            x: The inputs: a tensor, a tuple, or a dict of keyword inputs.
            members: Exactly these rows, as for `ensemble(x, members=...)`.
            draws: That many fresh rows, likewise.
            memory: The most bytes of activations that may be alive at once.
        """
        if memory is not None:
            whole("memory", memory)
        with _evaluating(self):
            return explain(self._runner, self.binding, self._rows(members, draws), Inputs.of(x), memory)

    @property
    def weights(self) -> Tensor:
        """How much each row of eval mode counts, `[members]`; sums to one."""
        return torch.full((self.binding.members,), 1 / self.binding.members, device=self.device)

    @property
    def device(self) -> torch.device:
        """Where the ensemble's tensors are."""
        tensors = itertools.chain(self.parameters(), self.buffers())
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    def member(self, row: int) -> nn.Module:
        """Row `row` of eval mode alone, a plain module in eval mode with copies of its tensors.

        It is of the user's own class, unless something must be added to it (a kept random draw, a
        prior network), and returns the prediction alone where the network returns more.
        """
        return self._runner.member(self.binding, row)

    def freeze(self) -> "Frozen":
        """All members for inference alone: no gradients, nothing left to compute before a run.

        BatchNorm becomes part of the layer before it where the data flow, read with the example of
        `convert`, proves that this changes nothing but rounding.
        """
        return Frozen(*freeze(self._runner, self.binding, self._example))

    def save(self, path: str | Path) -> None:
        """Writes a folder with the weights (safetensors) and the settings (JSON)."""
        output = self._runner.output
        settings = {
            "network": self.network,
            "method": self.method.to_dict(),
            "likelihood": self.likelihood.to_dict(),
            "selection": self._selection,
            "output": output if isinstance(output, str | int) else None,
            "output_is_function": callable(output),
            "seed": self.seed,
        }
        write_folder(path, settings, self.state_dict())

    def _rows(self, members: Sequence[Any] | None = None, draws: int | None = None) -> Sequence[Any]:
        if members is not None and draws is not None:
            raise InputError("members= and draws= exclude each other, however: both were given.")
        if draws is not None:
            whole("draws", draws)
            return self.binding.draw(draws)
        if members is None:
            return self.binding.rows()
        if not isinstance(members, Sequence) or not members:
            raise InputError(f"members must be a list of at least one row, however: {members!r}.")
        return self.binding.pick(members)

    def _losses(self, outputs: Tensor, y: Tensor, criterion: Criterion | None) -> Tensor:
        """Losses of the rows, `[members, batch]`, or `[members]` for a criterion that averages."""
        if criterion is None:
            return self.likelihood.losses(outputs, y)
        if not callable(criterion):
            raise InputError(f"criterion must be a function of outputs and targets, however: {criterion!r}.")
        losses = [criterion(output, y) for output in outputs]
        for loss in losses:
            if not isinstance(loss, Tensor) or loss.shape not in ((), (len(y),)):
                came = tuple(loss.shape) if isinstance(loss, Tensor) else type(loss).__name__
                raise InputError(f"criterion must give a scalar or one value per sample, however: {came}.")
        return join(losses)

    def _batches(self, x: Any) -> Iterator[Inputs]:
        if isinstance(x, Tensor | tuple | Mapping) or not isinstance(x, Iterable):
            yield Inputs.of(x)
            return
        for batch in x:
            yield inputs_of_batch(batch, self._runner.module.forward).to(self.device)

    def __repr__(self) -> str:
        return f"Ensemble({self.method}, {self.likelihood}, network={self.network})"


class Frozen(nn.Module):
    """All members for inference: `frozen(x)` is `[members, batch, ...]`, always in eval mode.

    Attributes:
        binding: The tensors of all members.
        notes: What became part of what, or why nothing did.
    """

    def __init__(self, runner: Runner, binding: Binding, notes: Sequence[str]) -> None:
        super().__init__()
        self.binding, self._runner, self.notes = binding, runner, tuple(notes)
        self.train(False)

    def train(self, mode: bool = True) -> Self:
        """Stays in eval mode whatever is asked."""
        self._runner.train(False)
        return super().train(False)

    @uncompiled
    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The outputs of all members, `[members, batch, ...]`."""
        return self._runner(self.binding, self.binding.rows(), Inputs(args, kwargs))

    def explain(self, x: Any) -> Explanation:
        """What the rows of `frozen(x)` share, where they part, and what that saves."""
        return explain(self._runner, self.binding, self.binding.rows(), Inputs.of(x))


@contextmanager
def _evaluating(ensemble: Ensemble) -> Iterator[None]:
    """Eval mode for a while; layers that the user had put into another mode get it back."""
    before = ensemble.training
    modes = ensemble._runner.modes()
    ensemble.eval()
    try:
        yield
    finally:
        ensemble.train(before)
        ensemble._runner.set_modes(modes)
