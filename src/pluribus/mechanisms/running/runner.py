"""Running rows: one after the other, stacked, by a plan or in one run; results agree up to rounding."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from pluribus.errors import InputError, PluribusError
from pluribus.mechanisms.exits.tapped import Tapped
from pluribus.mechanisms.members.axis import fork, join
from pluribus.mechanisms.members.members import Binding, Skeleton, Surrounding, blank, materialise
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.outputs import Output, select_output
from pluribus.mechanisms.network.rerun import is_run_again
from pluribus.mechanisms.running.batched import read_chain, run_chain
from pluribus.mechanisms.running.error_context import explain_failure
from pluribus.mechanisms.running.member import Member, Select
from pluribus.mechanisms.running.planner import Planned, Planner

Run = Callable[[Any, Inputs], Tensor]
"""How a filled module runs, where it is not simply called."""

Watch = Callable[[int, Tensor], Tensor | None]
"""Of a depth and what its exit says, which samples go on; None is all."""

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

STACKED_LAYERS = (nn.Linear, nn.LayerNorm, nn.Identity)
STACKED_ROWS = 8
"""Rows from which small networks are stacked: 4 gained nothing, 20 did, in between was not measured."""
STACKED_WORK = 1e8
"""Multiply-adds of one row up to which they are; around 3e7 it is a draw (benchmarks/stacking.py)."""


class Runner:
    """Runs the rows of a binding through the user's code.

    Args:
        module: The user's network; only its code is kept.
        output: What of the returned values is the prediction.
        planned: Whether rows run by a plan in eval mode wherever they share something.

    Attributes:
        reason: Why rows of this network run one after the other; empty where they may be stacked.
        refused: By train mode and gradients, why the code of the network could not be stacked after all.
        kept: What was read of the network and may be read again.
    """

    def __init__(self, module: nn.Module, output: Output = None, planned: bool = False) -> None:
        self.module = blank(module)
        self.output, self.planned = output, planned
        self.reason = _why_looped(module)
        self.refused: dict[tuple[bool, bool], str] = {}
        self._chain = read_chain(self.module)
        self._weights = sum(parameter.numel() for parameter in self.module.parameters())
        self.kept: dict[str, Any] = {}
        self._skeletons: list[tuple[Skeleton, Token]] = []
        self._writes_inputs: dict[tuple[bool, bool], bool] = {}
        self._prior: Runner | None = None
        self._planner: Planner | None = None

    @property
    def forward(self) -> Callable[..., Any]:
        """What the user's network is called by."""
        return (self.module.network if isinstance(self.module, Tapped) else self.module).forward

    def train(self, mode: bool) -> None:
        """Puts the user's code into train or eval mode; prior networks stay in eval mode."""
        for module in self._modules():
            module.train(mode)

    def modes(self) -> list[bool]:
        """The mode of every module of the user's code."""
        return [layer.training for layer in self.module.modules()]

    def set_modes(self, modes: Sequence[bool]) -> None:
        """Puts every module back into the mode it had."""
        for module in self._modules():
            for layer, mode in zip(module.modules(), modes, strict=True):
                layer.training = mode

    def __call__(
        self, binding: Binding, rows: Sequence[Any], inputs: Inputs, memory: int | None = None
    ) -> Tensor:
        """The predictions of some rows on one batch, `[rows, batch, ...]`.

        Args:
            binding: The tensors of all rows.
            rows: The rows.
            inputs: One batch.
            memory: The most bytes of activations that may be alive at once.
        """
        if binding.at_once:
            if memory is not None:
                raise InputError("memory can be bounded by a plan alone, however: one run gives all rows.")
            return self._at_once(binding, rows, [inputs])
        planned = self._plan(binding, rows, inputs, memory)
        if planned is None:
            outputs = self._outputs(binding, rows, inputs)
        else:
            outputs = planned(inputs)
            self._check(outputs.shape[1:], inputs)
        if binding.prior is None:
            return outputs
        with torch.no_grad():
            prior = self.prior_runner(binding.prior, rows, inputs, memory)
        return outputs + binding.prior_scale * prior

    def split(self, binding: Binding, rows: Sequence[Any], inputs: Sequence[Inputs]) -> list[Tensor]:
        """The predictions of each row on a batch of its own, or of rows at once on those of their slots."""
        if binding.at_once:
            slots = {slot: one for (slot, _), one in zip(rows, inputs, strict=True)}
            # A slot that no row answers for sees what the first row does.
            every = [slots.get(slot, inputs[0]) for slot in range(self.module.inputs)]  # type: ignore[arg-type]
            return list(self._at_once(binding, rows, every))
        shapes = {one.args[0].shape for one in inputs if self._chains(one)}
        if len(shapes) == 1 and self._stacks(binding, rows, inputs[0].batch):
            own, shared = binding.own_tensors(), binding.shared_tensors()
            with suppress(*CAUGHT):  # inputs that do not fit: the loop says which
                return list(run_chain(self._chain, own, shared, join([one.args[0] for one in inputs])))
        mixed = self._mixed(binding, rows, inputs)
        return self._looped(binding, rows, inputs) if mixed is None else mixed

    def watch(self, binding: Binding, rows: Sequence[Any], inputs: Inputs, watch: Watch) -> None:
        """Runs rows at once, telling `watch` what each exit says as soon as it is reached."""
        self._at_once(binding, rows, [inputs], watch)

    def member(self, binding: Binding, position: int) -> nn.Module:
        """One row of eval mode as a plain module."""
        row = binding.pick([position])[0]
        with torch.no_grad():
            network = materialise(self.module, next(iter(binding.bind([row])))).eval()
        network.register_forward_hook(Select(self.output))
        network = binding.alone(network, row)
        surrounding = binding.surrounding(row)
        prior = binding.prior and self.prior_runner.member(binding.prior, position)
        if surrounding is None and prior is None:
            return network
        return Member(network, surrounding, prior, binding.prior_scale).eval()

    def _modules(self) -> list[nn.Module]:
        return [self.module, *(skeleton.module for skeleton, _ in self._skeletons)]

    @property
    def prior_runner(self) -> "Runner":
        if self._prior is None:
            self._prior = Runner(self.module, self.output, self.planned)
            self._prior.train(False)
        return self._prior

    @property
    def planner(self) -> Planner:
        """Plans rows of eval mode."""
        if self._planner is None:
            self._planner = Planner(self.module, self.output)
        return self._planner

    def planned_rows(
        self, binding: Binding, rows: Sequence[Any], inputs: Inputs, memory: int | None = None
    ) -> Planned | None:
        """Rows ready to run by a plan; inputs that the network refuses are refused, and not read."""
        if self.planner.will_read(binding, inputs):
            module = materialise(self.module, next(iter(binding.bind(rows[:1]))))
            # As in reading, nothing of this is to be counted or to leave a trace.
            with _disable_current_modes(), dry_run(module, training=False), torch.no_grad():
                self._call(module, inputs)
        return self.planner(binding, rows, inputs, memory)

    def why_alone(self, binding: Binding, planned: Planned, inputs: Inputs, memory: int | None = None) -> str:
        """Why rows that could run by a plan in eval mode do not; empty where they do."""
        if memory is not None:
            return ""
        if not planned.plan.shares:
            return "they have nothing in common"
        if self._stacks(binding, planned.rows, inputs.batch):
            return "stacked, as the network is small"
        if binding.masks:
            return "they are cut out by their masks when frozen"
        return "" if self.planned or binding.planned else "ensembles of this method run by a plan when frozen"

    def _plan(
        self, binding: Binding, rows: Sequence[Any], inputs: Inputs, memory: int | None
    ) -> Planned | None:
        """How rows run together; None where they run one after the other, or all at once."""
        if memory is None:
            wanted = (self.planned or binding.planned) and len(rows) > 1 and not any(self.modes())
            if not wanted or self._stacks(binding, rows, inputs.batch):
                return None
            if not binding.planned and self.planner.is_hopeless(binding, rows):
                return None
        try:
            planned = self.planned_rows(binding, rows, inputs, memory)
        except PluribusError:
            raise
        except CAUGHT as error:  # inputs that do not fit, as those on another device: the loop says which
            self.planner.reason, planned = f"{type(error).__name__}: {error}", None
        if planned is None and memory is not None:
            raise InputError(f"memory can be bounded by a plan alone, however: {self.planner.reason}.")
        return planned if planned and (planned.plan.shares or memory is not None) else None

    def _outputs(self, binding: Binding, rows: Sequence[Any], inputs: Inputs) -> Tensor:
        mixed = self._mixed(binding, rows, [inputs] * len(rows))
        if mixed is not None:
            return join(mixed)
        if self._stacks(binding, rows, inputs.batch):
            try:
                return self._stacked(binding, inputs)
            except CAUGHT as error:  # the user's code does something that vmap cannot, or fails anyhow
                outputs = join(self._looped(binding, rows, [inputs] * len(rows)))
                self.refused[self._mode] = str(error).splitlines()[0]
                return outputs
        return join(self._looped(binding, rows, [inputs] * len(rows)))

    def _at_once(
        self, binding: Binding, rows: Sequence[Any], parts: Sequence[Inputs], watch: Watch | None = None
    ) -> Tensor:
        """All rows in one run, of one batch or of one for each slot."""

        def run(module: Any, given: Inputs) -> Tensor:
            outputs: Tensor = module.run([given, *parts[1:]], rows, watch)
            return outputs if watch is None else outputs.new_empty(given.batch, 1)  # it has seen all

        (tensors,) = binding.bind(rows[:1])
        return self._row(tensors, parts[0], run=run).transpose(0, 1)

    def _mixed(self, binding: Binding, rows: Sequence[Any], inputs: Sequence[Inputs]) -> list[Tensor] | None:
        """All rows in one run over all of their samples, whose statistics are those of all of them."""
        sizes = [one.batch for one in inputs]
        tensors = binding.mix(rows, sizes) if self.module.training else None
        if tensors is None:
            return None
        return list(torch.split(self._row(tensors, Inputs.joined(inputs)), sizes))

    def _looped(self, binding: Binding, rows: Sequence[Any], inputs: Sequence[Inputs]) -> list[Tensor]:
        outputs: list[Tensor] = []
        counted = len(rows) > 1 and self.module.training
        before = {name: b.clone() for name, b in binding.shared.named_buffers()} if counted else {}
        for row, values, tensors in zip(rows, inputs, binding.bind(rows), strict=True):
            if outputs and values is inputs[0]:  # all rows see one batch: shared statistics count it once
                tensors |= {name: buffer.clone() for name, buffer in before.items()}
            outputs.append(self._row(tensors, values, binding.surrounding(row)))
        return outputs

    def _row(
        self,
        tensors: Mapping[str, Tensor],
        inputs: Inputs,
        surrounding: Surrounding | None = None,
        run: Run | None = None,
    ) -> Tensor:
        """One run of the user's code with these tensors."""
        skeleton, token = self._free_skeleton()
        module = skeleton.fill(tensors)
        with surrounding(module, inputs.batch) if surrounding else nullcontext():
            output = self._call(module, inputs, run)
        if surrounding and is_run_again(output):
            raise InputError(
                "a kept random row cannot be run again during backward, however: the network uses "
                "gradient checkpointing. Use torch.no_grad(), or switch checkpointing off."
            )
        skeleton.collect(tensors)
        token.live_with(output)
        return output

    def _stacked(self, binding: Binding, inputs: Inputs) -> Tensor:
        own, shared = binding.own_tensors(), binding.shared_tensors()
        if self._chains(inputs):
            outputs = run_chain(self._chain, own, shared, fork(inputs.args[0], binding.members))
            self._check(outputs.shape[1:], inputs)
            return outputs
        (skeleton, _), inputs = self._free_skeleton(), inputs.copy()

        def row(own: dict[str, Tensor]) -> Tensor:
            module = skeleton.fill({**shared, **own})
            return self._picked(module(*inputs.args, **inputs.keywords), inputs)

        # Code that hooks saved tensors (gradient checkpointing) would run rows again outside of vmap.
        with torch.autograd.graph.disable_saved_tensors_hooks("checkpointing cannot be stacked"):
            return torch.vmap(row)(own)

    def _free_skeleton(self) -> tuple[Skeleton, "Token"]:
        """A skeleton whose last outputs no backward can reach any more: backward may run it again."""
        for skeleton, token in self._skeletons:
            if token.free:
                return skeleton, token
        self._skeletons.append((Skeleton(self.module), Token()))
        return self._skeletons[-1]

    def _chains(self, inputs: Inputs) -> bool:
        """Whether the network is a chain of known layers, and takes these inputs as one."""
        plain = self.output is None and len(inputs.args) == 1 and not inputs.kwargs
        return bool(self._chain) and plain and isinstance(inputs.args[0], Tensor)

    def _stacks(self, binding: Binding, rows: Sequence[Any], batch: int) -> bool:
        if self.reason or self._mode in self.refused or len(rows) < STACKED_ROWS:
            return False
        if rows != binding.stacked_rows():
            return False
        return batch * self._weights <= STACKED_WORK

    @property
    def _mode(self) -> tuple[bool, bool]:
        return self.module.training, torch.is_grad_enabled()

    def _call(self, module: nn.Module, inputs: Inputs, run: Run | None = None) -> Tensor:
        """One run; code that writes into its inputs gets copies of them, so that all rows see the same."""
        watched = not torch.is_inference_mode_enabled()  # there tensors do not count what is written
        given = inputs.copy() if not watched or self._writes_inputs.get(self._mode, True) else inputs
        before = given.versions() if watched else []
        try:
            returned = run(module, given) if run else module(*given.args, **given.keywords)
        except (PluribusError, torch.OutOfMemoryError):
            raise
        except CAUGHT as error:
            raise InputError(explain_failure(module, inputs, error)) from error
        if watched:
            self._writes_inputs.setdefault(self._mode, given.versions() != before)
        return self._picked(returned, inputs)

    def _picked(self, returned: Any, inputs: Inputs) -> Tensor:
        """The prediction among what a row returned."""
        outputs = select_output(returned, self.output)
        self._check(outputs.shape, inputs)
        return outputs

    def _check(self, shape: torch.Size, inputs: Inputs) -> None:
        if not shape or shape[0] != inputs.batch:
            raise InputError(
                f"the network must return one row per sample, {inputs.batch} here, "
                f"however: shape {tuple(shape)}. Pick another value with convert(..., output=...)."
            )

    def __getstate__(self) -> dict[str, Any]:
        # Skeletons hold tensors of past runs; what was read and planned can be had again.
        return {**self.__dict__, "_skeletons": [], "_planner": None, "kept": {}}


class Token:
    """Knows whether a graph is still there that a skeleton made."""

    def __init__(self) -> None:
        self._alive: weakref.ref[object] | None = None

    @property
    def free(self) -> bool:
        """Whether no backward can come any more."""
        return self._alive is None or self._alive() is None

    def live_with(self, output: Tensor) -> None:
        """Is not free while the graph of `output` is kept."""
        if output.grad_fn is not None:
            mark = Mark()
            output.grad_fn.metadata[Mark] = mark  # type: ignore[index]
            self._alive = weakref.ref(mark)


class Mark:
    """Lives as long as the graph it is attached to."""


def _why_looped(module: nn.Module) -> str:
    """Why rows of this network run one after the other; empty where they may be stacked."""
    for name, layer in module.named_modules():
        own = (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
        if own and not isinstance(layer, STACKED_LAYERS):
            return f"{name or 'the network itself'} is a {type(layer).__name__}"
    return ""
