"""Training on the testbed: all problems of one shape at once.

Every member sees the same batches. The loss is the Gaussian one with the known noise,

    L = 1/R Σ_r w_r 1/B Σ_b v_rb (f_r(x_b) − y_rb)² / (2 ε²) + penalty

where y_r are the targets with the fixed noise of row r, if a preset has such, w_r how often the row was
drawn, and v_rb the bootstrap weight of a sample, if a preset has such, and 1 otherwise. Adam makes nothing of
the loss's scale, except where there is a penalty.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from pluribus.conversion import convert
from pluribus.data.testbed import Problem
from pluribus.mechanisms.members.drawn import Drawn, normal_numbers
from pluribus.mechanisms.members.index import Combinations, Index, Row
from pluribus.mechanisms.members.prior import WithPrior
from pluribus.method import Method
from pluribus.methods import BayesByBackprop, Hypermodel, LayerEnsembles
from pluribus.methods.vnn import OutputNoise, UnitNoise
from pluribus.testbed.networks import LAYERS, make_mlp
from pluribus.testbed.presets import Preset
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.shared_layers import run_all_options
from pluribus.testbed.stack import Stack, run

AGENT_SEED = 0
"""Of weights and training, the same for all problems as in the authors' code."""
LEAST_RATE = 1e-3
"""Where a cosine ends, as a share of the learning rate."""
MOST_SEEDS = 2**31
"""Seeds of rows that are drawn for a step."""
CHUNK = 1000
"""Points at a time where all members run."""


@dataclass(frozen=True)
class Data:
    """The training data of several problems of one shape.

    Attributes:
        x: `[problems, samples, inputs]`.
        y: `[problems, samples]`.
        noise: ε, `[problems]`.
    """

    x: Tensor
    y: Tensor
    noise: Tensor

    @classmethod
    def of(cls, problems: Sequence[Problem], protocol: Protocol) -> "Data":
        """Return the data of problems, stacked, where and as the protocol trains."""
        noises = torch.tensor([one.noise for one in problems])
        stacked = torch.stack([one.x for one in problems]), torch.stack([one.y for one in problems]), noises
        return cls(*(values.to(protocol.device, protocol.dtype) for values in stacked))

    def noisy(self, shape: Sequence[int], generator: Generator) -> Tensor:
        """Return copies of the targets with fixed noise of their own, `[problems, *shape, samples]`."""
        problems, samples = self.y.shape
        # Drawn on the CPU, the noise is the same on every device.
        drawn = torch.randn(problems, *shape, samples, generator=generator).to(self.y)
        lead = [1] * len(shape)
        return self.y.view(problems, *lead, samples) + self.noise.view(problems, *lead, 1) * drawn

    def pick(self, values: Tensor, chosen: Tensor) -> Tensor:
        """Return the chosen samples, `[problems, batch]`, of `[problems, rows, samples]`."""
        return values.gather(2, chosen[:, None].expand(-1, values.shape[1], -1))


class Learner(ABC):
    """Computes what members get wrong on a batch.

    Args:
        stack: The members of every problem.
        data: Their training data.
        preset: How they train.
        generator: Of all that is drawn before training.
    """

    def __init__(self, stack: Stack, data: Data, preset: Preset, generator: Generator) -> None:
        self.stack, self.data = stack, data

    @abstractmethod
    def errors(self, chosen: Tensor) -> Tensor:
        """Return f_r(x_b) − y_rb, `[problems, rows, batch]`, of the chosen samples, `[problems, batch]`."""

    def squares(self, chosen: Tensor) -> Tensor:
        """Return v_rb (f_r(x_b) − y_rb)², `[problems, rows, batch]`."""
        return self.errors(chosen).square()

    @abstractmethod
    def evaluate(self, place: int, x: Tensor) -> Tensor:
        """Return the outputs of all members of the problem at a place, `[members, points]`."""

    def batch(self, chosen: Tensor) -> Tensor:
        """Return the inputs of the chosen samples, `[problems, batch, inputs]`."""
        return self.data.x[_places(chosen), chosen]


class AllOptions(Learner):
    """Layer ensembles: all combinations of options in every step, with shared layers."""

    def __init__(self, stack: Stack, data: Data, preset: Preset, generator: Generator) -> None:
        super().__init__(stack, data, preset, generator)
        members = stack.template.members
        self.names = [f"{layer}.{kind}" for layer in LAYERS for kind in ("weight", "bias")]
        inside = "learnt.tensors.own" if isinstance(members, WithPrior) else "tensors.own"
        self.options = {name: stack.values[f"{inside}.{name}"] for name in self.names}
        self.count = self.options[self.names[0]].shape[1]
        self.scale = members.scale if isinstance(members, WithPrior) else 0.0
        self.fixed = dict[str, Tensor]()
        if isinstance(members, WithPrior):
            own = members.prior.tensors.parts()[1]
            self.fixed = {name: own[name].detach().unsqueeze(0) for name in self.names}
        # The prior never changes, so that its outputs on the training inputs are computed once.
        self.prior = self._prior(data.x)
        self.targets = data.noisy([self.count], generator)

    def _prior(self, x: Tensor) -> Tensor | None:
        """Return the scaled prior of all combinations, `[problems, members, points]`; None without one."""
        if not self.scale:
            return None
        problems = len(x)
        fixed = {name: value.expand(problems, *value.shape[1:]) for name, value in self.fixed.items()}
        with torch.no_grad():
            parts = [self.scale * run_all_options(fixed, part) for part in torch.split(x, CHUNK, 1)]
        return torch.cat(parts, 2)

    def errors(self, chosen: Tensor) -> Tensor:
        outputs = run_all_options(self.options, self.batch(chosen))
        if self.prior is not None:
            outputs = outputs + self.data.pick(self.prior, chosen)
        # The first layer's option changes most slowly, and has the targets.
        targets = self.data.pick(self.targets, chosen).repeat_interleave(self.count**2, 1)
        return outputs - targets

    @torch.no_grad()
    def evaluate(self, place: int, x: Tensor) -> Tensor:
        own = {name: value[place : place + 1] for name, value in self.options.items()}
        parts = [run_all_options(own, part[None])[0] for part in torch.split(x, CHUNK)]
        outputs = torch.cat(parts, 1)
        prior = self._prior(x[None])
        return outputs if prior is None else outputs + prior[0]


class SomeRows(Learner):
    """Any method: the rows that its index draws for a step."""

    def __init__(self, stack: Stack, data: Data, preset: Preset, generator: Generator) -> None:
        super().__init__(stack, data, preset, generator)
        self.members, self.kind = stack.template.members, preset.target_noise
        rows = self.members.index.rows(training=True)
        # Positions are the same in every step; drawn rows are not.
        self.fixed = isinstance(rows, range)
        count = {"member": len(rows), "option": _options(self.members.index)}.get(self.kind, 1)
        self.targets = data.noisy([count], generator) if count > 1 else data.y[:, None]
        self.directions = None
        if isinstance(preset.method, Hypermodel) and self.kind == "index":
            shape = (*data.y.shape, preset.method.dimension)
            self.directions = torch.randn(shape, generator=generator).to(data.y)
        self.prior: Tensor | None = None
        if self.fixed and isinstance(self.members, WithPrior):
            with torch.no_grad():
                each = self._prior_of(rows, data.x.flatten(0, 1))
            self.prior = _by_problem(each, data.x)

    def _prior_of(self, rows: Sequence[Row], x: Tensor) -> Tensor:
        """Return the scaled prior of some rows, `[rows, points]`."""
        assert isinstance(self.members, WithPrior)
        parts = [run(self.members.prior, rows, part) for part in torch.split(x, CHUNK)]
        return self.members.scale * torch.cat(parts, 1)

    def draw_rows(self) -> Sequence[Row]:
        """Return the rows of a step."""
        return self.members.index.rows(training=True)

    def errors(self, chosen: Tensor) -> Tensor:
        rows, x = self.draw_rows(), self.batch(chosen)
        outputs = self.stack.outputs(rows, x)
        if self.prior is not None:
            outputs = outputs + self.data.pick(self.prior, chosen)
        elif isinstance(self.members, WithPrior):
            # One call for all problems: drawing the weights of a row takes longer than running it.
            with torch.no_grad():
                prior = self._prior_of(rows, x.flatten(0, 1))
            outputs = outputs + _by_problem(prior, x)
        return outputs - self._targets(rows, chosen)

    def _targets(self, rows: Sequence[Row], chosen: Tensor) -> Tensor:
        """Return the targets of every row, `[problems, rows, batch]`, or of all rows alike."""
        targets = self.data.pick(self.targets, chosen)
        if self.kind == "option":
            return targets[:, [row[0] for row in rows]]
        if self.directions is None:
            return targets
        # The noise of a sample is linear in the index, with variance ε².
        size = self.directions.shape[-1]
        index = torch.stack([normal_numbers([size], row, 0, self.directions) for row in rows])
        directions = self.directions[_places(chosen), chosen]
        noise = torch.einsum("pbd,rd->prb", directions, index) / math.sqrt(size)
        return targets + self.data.noise[:, None, None] * noise

    @torch.no_grad()
    def evaluate(self, place: int, x: Tensor) -> Tensor:
        outputs = [self.stack.ensembles[place](part) for part in torch.split(x, CHUNK)]
        return torch.cat(outputs, 1).squeeze(-1)


class Bootstrapped(SomeRows):
    """Rows that draw one number for each unit, from which exponential weights of the samples follow.

        v = ((b · z)² + (c · z)²) / 2,    z the numbers of the row, with a length of about 1

    b and c are normal numbers of the sample, the same for all problems, as in the authors' code.
    """

    def __init__(self, stack: Stack, data: Data, preset: Preset, generator: Generator) -> None:
        super().__init__(stack, data, preset, generator)
        tensors = self.members.tensors
        assert isinstance(tensors, UnitNoise | OutputNoise)
        self.tensors, self.generator = tensors, generator
        size = tensors.index(0).numel()
        shape = (2, data.y.shape[1], size)
        self.projections = (torch.randn(shape, generator=generator) / math.sqrt(size)).to(data.y)

    def draw_rows(self) -> Sequence[Row]:
        # Fresh numbers have no name, by which the weights could follow from them.
        count = len(super().draw_rows())
        self.rows = torch.randint(MOST_SEEDS, (count,), generator=self.generator).tolist()
        return self.rows

    def squares(self, chosen: Tensor) -> Tensor:
        squares = super().squares(chosen)
        index = torch.stack([self.tensors.index(row) for row in self.rows]).to(squares)
        return squares * exponential_weights(self.projections[:, chosen], index)


def exponential_weights(directions: Tensor, index: Tensor) -> Tensor:
    """Return bootstrap weights with mean 1 that follow from the rows' numbers, `[problems, rows, batch]`.

    Args:
        directions: b and c of every sample, divided by the root of their size, `[2, problems, batch, size]`.
        index: Numbers of the rows, `[rows, size]`.
    """
    return torch.einsum("kpbd,rd->kprb", directions, index).square().mean(0)


def _places(chosen: Tensor) -> Tensor:
    """Return the place of each problem, `[problems, 1]`, to pick samples by."""
    return torch.arange(len(chosen), device=chosen.device)[:, None]


def _by_problem(values: Tensor, x: Tensor) -> Tensor:
    """Return `[rows, problems × batch]` as `[problems, rows, batch]` for inputs `[problems, batch, ...]`."""
    return values.view(len(values), *x.shape[:2]).transpose(0, 1)


def _options(index: Index) -> int:
    """Return how many options the first site has; 1 where rows are no combinations."""
    if not isinstance(index, Combinations):
        return 1
    return next(iter(index.sizes.values()))


Tick = Callable[[float], None]
"""Callback (share of the steps that are done)."""


def train(preset: Preset, problems: Sequence[Problem], protocol: Protocol, tick: Tick) -> Learner:
    """Train one preset on several problems of one shape at once, and return its members in eval mode.

    Args:
        preset: What is trained.
        problems: With the same number of inputs and samples.
        protocol: How.
        tick: Called after every step.
    """
    generator = Generator().manual_seed(AGENT_SEED)
    torch.manual_seed(AGENT_SEED)
    data = Data.of(problems, protocol)
    inputs = data.x.shape[2]
    ensemble = convert(
        lambda: make_mlp(inputs, preset.width, scaled=preset.scaled, zeroed=preset.zeroed),
        preset.method,
        "point",
        seed=AGENT_SEED,
        example=problems[0].x[:2],
    ).to(protocol.device, protocol.dtype)
    stack = Stack(ensemble.train(), len(problems))
    learner = _learner_of(preset)(stack, data, preset, generator)
    optimizer = torch.optim.Adam(list(stack.values.values()), lr=protocol.rate, fused=True)
    for step in range(protocol.steps):
        progress = (step + 1) / protocol.steps
        if preset.cosine:
            _set_rate(optimizer, protocol.rate, step / protocol.steps)
        chosen = torch.randint(data.y.shape[1], (len(problems), protocol.batch), generator=generator)
        chosen = chosen.to(data.y.device)
        losses = learner.squares(chosen).mean(2) / (2 * data.noise[:, None].square())
        penalties = stack.penalties(protocol.batch, data.y.shape[1], progress)
        if preset.mean_prior:
            penalties = penalties + _widen_mean_prior(stack, preset, data.y.shape[1])
        weights = _draw_weights(losses.shape[1], protocol.as_in_paper, generator).to(losses)
        optimizer.zero_grad()
        ((losses * weights).mean(1) + penalties).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        _after_step(stack, preset.method, progress)
        tick(progress)
    for one in stack.ensembles:
        one.eval()
    return learner


def _learner_of(preset: Preset) -> type[Learner]:
    """Return how the members of a preset learn."""
    if _is_chain(preset):
        return AllOptions
    return Bootstrapped if preset.bootstrap else SomeRows


def _is_chain(preset: Preset) -> bool:
    """Return whether all combinations of a layer ensemble are trained, as the presets do."""
    method = preset.method
    return isinstance(method, LayerEnsembles) and preset.name.startswith("layer_ensembles_")


def _widen_mean_prior(stack: Stack, preset: Preset, size: int) -> Tensor:
    """Return what makes the prior of the means N(0, mean_prior²) in the divergence, `[problems]`.

        1/T Σ μ² / 2 (1/mean_prior² − 1/σ_p²)

    Args:
        stack: Of Bayes by Backprop.
        preset: Its preset.
        size: T, of the training set.
    """
    method, tensors = preset.method, stack.template.members.tensors
    assert isinstance(method, BayesByBackprop)
    assert isinstance(tensors, Drawn)
    means = [stack.values[f"tensors.shared.{name}"] for name in tensors.names]
    squares = torch.stack([mean.flatten(1).square().sum(1) for mean in means]).sum(0)
    return squares * (preset.mean_prior**-2 - method.prior_deviation**-2) / (2 * size)


def _set_rate(optimizer: torch.optim.Optimizer, rate: float, done: float) -> None:
    """Let the learning rate fall by a cosine."""
    share = LEAST_RATE + (1 - LEAST_RATE) * (1 + math.cos(math.pi * done)) / 2
    for group in optimizer.param_groups:
        group["lr"] = rate * share


def _draw_weights(rows: int, with_replacement: bool, generator: Generator) -> Tensor:
    """Return how often each row counts in a step: as often as it is drawn, once on average, or once."""
    if not with_replacement or rows == 1:
        return torch.ones(rows)
    drawn = torch.randint(rows, (rows,), generator=generator)
    return drawn.bincount(minlength=rows).float()


def _after_step(stack: Stack, method: Method, progress: float) -> None:
    """Let methods that watch their weights do so; most do not, and a call for each problem takes time."""
    if type(method).after_step is Method.after_step:
        return
    for one in stack.ensembles:
        one.after_step(progress)
