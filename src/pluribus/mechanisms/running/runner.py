"""Running rows: one after the other, stacked, by a plan or in one run; results agree up to rounding."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn

from pluribus.errors import InputError, PluribusError
from pluribus.mechanisms.exits.tapped import Tapped
from pluribus.mechanisms.members.axis import fork, join
from pluribus.mechanisms.members.members import Binding, Surrounding
from pluribus.mechanisms.members.skeleton import Modes, Skeleton, Skeletons, blank, materialise, modes_of
from pluribus.mechanisms.network.dry_run import PROCESS, dry_run
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.outputs import Output, select_output
from pluribus.mechanisms.network.torch_private import is_run_again, without_dispatch_modes, write_count
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
        modes: The mode of each module of the user's code.
        eval_modes: All of them in eval mode.
    """

    def __init__(self, module: nn.Module, output: Output = None, planned: bool = False) -> None:
        self.module = blank(module)
        self.output, self.planned = output, planned
        self.reason = _why_looped(module)
        self.refused: dict[tuple[bool, bool], str] = {}
        self._chain = read_chain(self.module)
        self._weights = sum(parameter.numel() for parameter in self.module.parameters())
        self.kept: dict[str, Any] = {}
        self.modes = modes_of(self.module)
        self.eval_modes: Modes = (False,) * len(self.modes)
        self._skeletons = Skeletons(self.module)
        self._written: frozenset[str] | None = None
        self._writes_inputs: dict[tuple[bool, bool], bool] = {}
        self._prior: Runner | None = None
        self._planner: Planner | None = None

    @property
    def forward(self) -> Callable[..., Any]:
        """What the user's network is called by."""
        return (self.module.network if isinstance(self.module, Tapped) else self.module).forward

    def train(self, mode: bool) -> None:
        """Puts the user's code into train or eval mode; prior networks stay in eval mode."""
        if any(one != mode for one in self.modes):
            self.module.train(mode)
            self.modes = modes_of(self.module)

    def __call__(
        self,
        binding: Binding,
        rows: Sequence[Any],
        inputs: Inputs,
        memory: int | None = None,
        modes: Modes | None = None,
    ) -> Tensor:
        """The predictions of some rows on one batch, `[rows, batch, ...]`.

        Args:
            binding: The tensors of all rows.
            rows: The rows.
            inputs: One batch.
            memory: The most bytes of activations that may be alive at once.
            modes: The mode of each module; the present ones.
        """
        modes = self.modes if modes is None else modes
        if binding.at_once:
            if memory is not None:
                raise InputError("memory can be bounded by a plan alone, however: one run gives all rows.")
            return self._at_once(binding, rows, [inputs], modes)
        planned = self._plan(binding, rows, inputs, memory, modes)
        if planned is None:
            outputs = self._outputs(binding, rows, inputs, modes)
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
            return list(self._at_once(binding, rows, every, self.modes))
        shapes = {one.args[0].shape for one in inputs if self._chains(one)}
        if len(shapes) == 1 and self._stacks(binding, rows, inputs[0].batch, self.modes):
            own, shared = binding.own_tensors(), binding.shared_tensors()
            with suppress(*CAUGHT):  # inputs that do not fit: the loop says which
                return list(run_chain(self._chain, own, shared, join([one.args[0] for one in inputs])))
        mixed = self._mixed(binding, rows, inputs, self.modes)
        return self._looped(binding, rows, inputs, self.modes) if mixed is None else mixed

    def watch(self, binding: Binding, rows: Sequence[Any], inputs: Inputs, watch: Watch) -> None:
        """Runs rows at once, telling `watch` what each exit says as soon as it is reached."""
        self._at_once(binding, rows, [inputs], self.eval_modes, watch)

    def one_by_one(self, binding: Binding, rows: Sequence[Any], inputs: Inputs) -> Tensor:
        """Return the outputs of rows in eval mode by the slow way, which needs no proof."""
        if binding.at_once:
            return self._at_once(binding, rows, [inputs], self.eval_modes)
        return join(self._looped(binding, rows, [inputs] * len(rows), self.eval_modes))

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

    @property
    def prior_runner(self) -> "Runner":
        with PROCESS:
            if self._prior is None:
                self._prior = Runner(self.module, self.output, self.planned)
                self._prior.train(False)
            return self._prior

    @property
    def planner(self) -> Planner:
        """Plans rows of eval mode."""
        with PROCESS:
            if self._planner is None:
                self._planner = Planner(self.module, self.output)
            return self._planner

    def planned_rows(
        self, binding: Binding, rows: Sequence[Any], inputs: Inputs, memory: int | None = None
    ) -> Planned | None:
        """Rows ready to run by a plan; inputs that the network refuses are refused, and not read."""
        if not self.planner.will_read(binding, inputs):
            return self.planner(binding, rows, inputs, memory)
        with PROCESS:  # another thread may be reading just that
            if self.planner.will_read(binding, inputs):
                module = materialise(self.module, next(iter(binding.bind(rows[:1]))))
                # As in reading, nothing of this is to be counted or to leave a trace.
                with without_dispatch_modes(), dry_run(module, training=False), torch.no_grad():
                    self._call(module, inputs)
            return self.planner(binding, rows, inputs, memory)

    def why_alone(self, binding: Binding, planned: Planned, inputs: Inputs, memory: int | None = None) -> str:
        """Why rows that could run by a plan in eval mode do not; empty where they do."""
        if memory is not None:
            return ""
        if not planned.plan.shares:
            return "they have nothing in common"
        if self._stacks(binding, planned.rows, inputs.batch, self.eval_modes):
            return "stacked, as the network is small"
        if binding.masks:
            return "they are cut out by their masks when frozen"
        return "" if self.planned or binding.planned else "ensembles of this method run by a plan when frozen"

    def _plan(
        self, binding: Binding, rows: Sequence[Any], inputs: Inputs, memory: int | None, modes: Modes
    ) -> Planned | None:
        """How rows run together; None where they run one after the other, or all at once."""
        if memory is None:
            wanted = (self.planned or binding.planned) and len(rows) > 1 and not any(modes)
            if not wanted or self._stacks(binding, rows, inputs.batch, modes):
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

    def _outputs(self, binding: Binding, rows: Sequence[Any], inputs: Inputs, modes: Modes) -> Tensor:
        mixed = self._mixed(binding, rows, [inputs] * len(rows), modes)
        if mixed is not None:
            return join(mixed)
        if self._stacks(binding, rows, inputs.batch, modes):
            try:
                return self._stacked(binding, inputs, modes)
            except CAUGHT as error:  # the user's code does something that vmap cannot, or fails anyhow
                outputs = join(self._looped(binding, rows, [inputs] * len(rows), modes))
                self.refused[_kind_of_run(modes)] = str(error).splitlines()[0]
                return outputs
        return join(self._looped(binding, rows, [inputs] * len(rows), modes))

    def _at_once(
        self,
        binding: Binding,
        rows: Sequence[Any],
        parts: Sequence[Inputs],
        modes: Modes,
        watch: Watch | None = None,
    ) -> Tensor:
        """All rows in one run, of one batch or of one for each slot."""

        def run(module: Any, given: Inputs) -> Tensor:
            outputs: Tensor = module.run([given, *parts[1:]], rows, watch)
            return outputs if watch is None else outputs.new_empty(given.batch, 1)  # it has seen all

        (tensors,) = binding.bind(rows[:1])
        return self._row(tensors, parts[0], modes, run=run).transpose(0, 1)

    def _mixed(
        self, binding: Binding, rows: Sequence[Any], inputs: Sequence[Inputs], modes: Modes
    ) -> list[Tensor] | None:
        """All rows in one run over all of their samples, whose statistics are those of all of them."""
        sizes = [one.batch for one in inputs]
        tensors = binding.mix(rows, sizes) if modes[0] else None
        if tensors is None:
            return None
        return list(torch.split(self._row(tensors, Inputs.joined(inputs), modes), sizes))

    def _looped(
        self, binding: Binding, rows: Sequence[Any], inputs: Sequence[Inputs], modes: Modes
    ) -> list[Tensor]:
        outputs: list[Tensor] = []
        counted = len(rows) > 1 and modes[0]
        before = {name: b.clone() for name, b in binding.shared.named_buffers()} if counted else {}
        for row, values, tensors in zip(rows, inputs, binding.bind(rows), strict=True):
            if outputs and values is inputs[0]:  # all rows see one batch: shared statistics count it once
                tensors |= {name: buffer.clone() for name, buffer in before.items()}
            outputs.append(self._row(tensors, values, modes, binding.surrounding(row)))
        return outputs

    def _row(
        self,
        tensors: Mapping[str, Tensor],
        inputs: Inputs,
        modes: Modes,
        surrounding: Surrounding | None = None,
        run: Run | None = None,
    ) -> Tensor:
        """One run of the user's code with these tensors."""
        loan, learns = self._skeletons.borrow(modes), any(modes)
        given = tensors if learns else self._protected(tensors, loan.skeleton)
        module = loan.skeleton.fill(given)
        with surrounding(module, inputs.batch) if surrounding else nullcontext():
            output = self._call(module, inputs, run)
        if surrounding and is_run_again(output):
            raise InputError(
                "a kept random row cannot be run again during backward, however: the network uses "
                "gradient checkpointing. Use torch.no_grad(), or switch checkpointing off."
            )
        if learns:
            loan.skeleton.collect(tensors)
        elif self._written is None:
            self._written = _written_buffers(given, tensors)
        loan.keep_with(output)
        return output

    def _protected(self, tensors: Mapping[str, Tensor], skeleton: Skeleton) -> Mapping[str, Tensor]:
        """Return the tensors with copies of the buffers that the code writes into in eval mode."""
        names = skeleton.buffer_names() if self._written is None else self._written
        return {**tensors, **{name: tensors[name].clone() for name in names}} if names else tensors

    def _stacked(self, binding: Binding, inputs: Inputs, modes: Modes) -> Tensor:
        own, shared = binding.own_tensors(), binding.shared_tensors()
        if self._chains(inputs):
            outputs = run_chain(self._chain, own, shared, fork(inputs.args[0], binding.members))
            self._check(outputs.shape[1:], inputs)
            return outputs
        loan, inputs = self._skeletons.borrow(modes), inputs.copy()

        def row(own: dict[str, Tensor]) -> Tensor:
            module = loan.skeleton.fill({**shared, **own})
            return self._picked(module(*inputs.args, **inputs.keywords), inputs)

        # Code that hooks saved tensors (gradient checkpointing) would run rows again outside of vmap.
        with torch.autograd.graph.disable_saved_tensors_hooks("checkpointing cannot be stacked"):
            return torch.vmap(row)(own)

    def _chains(self, inputs: Inputs) -> bool:
        """Whether the network is a chain of known layers, and takes these inputs as one."""
        plain = self.output is None and len(inputs.args) == 1 and not inputs.kwargs
        return bool(self._chain) and plain and isinstance(inputs.args[0], Tensor)

    def _stacks(self, binding: Binding, rows: Sequence[Any], batch: int, modes: Modes) -> bool:
        if self.reason or _kind_of_run(modes) in self.refused or len(rows) < STACKED_ROWS:
            return False
        if rows != binding.stacked_rows():
            return False
        return batch * self._weights <= STACKED_WORK

    def _call(self, module: nn.Module, inputs: Inputs, run: Run | None = None) -> Tensor:
        """One run; code that writes into its inputs gets copies of them, so that all rows see the same."""
        watched = not torch.is_inference_mode_enabled()  # there tensors do not count what is written
        kind = (module.training, torch.is_grad_enabled())
        given = inputs.copy() if not watched or self._writes_inputs.get(kind, True) else inputs
        before = given.versions() if watched else []
        try:
            returned = run(module, given) if run else module(*given.args, **given.keywords)
        except (PluribusError, torch.OutOfMemoryError):
            raise
        except CAUGHT as error:
            raise InputError(explain_failure(module, inputs, error)) from error
        if watched:
            self._writes_inputs.setdefault(kind, given.versions() != before)
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
        return {**self.__dict__, "_planner": None, "_prior": None, "kept": {}}


def _kind_of_run(modes: Modes) -> tuple[bool, bool]:
    """Return what decides how code behaves under vmap: the mode, and whether there are gradients."""
    return modes[0], torch.is_grad_enabled()


def _written_buffers(copies: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> frozenset[str]:
    """Return the names of the copied tensors that a run wrote into."""
    found = set[str]()
    for name, copied in copies.items():
        if copied is tensors[name]:
            continue
        # Tensors made in inference mode do not count what is written into them.
        counts = not copied.is_inference()
        if write_count(copied) > 0 if counts else not torch.equal(copied, tensors[name]):
            found.add(name)
    return frozenset(found)


def _why_looped(module: nn.Module) -> str:
    """Why rows of this network run one after the other; empty where they may be stacked."""
    for name, layer in module.named_modules():
        own = (*layer.parameters(recurse=False), *layer.buffers(recurse=False))
        if own and not isinstance(layer, STACKED_LAYERS):
            return f"{name or 'the network itself'} is a {type(layer).__name__}"
    return ""
