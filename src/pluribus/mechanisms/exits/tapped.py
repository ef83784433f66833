"""Tapping: a network that takes several inputs at once and has an exit at every depth.

The user's code runs as it is. Hooks join the inputs of all slots before the first layers, read values at
the exits, and stop the run, by an exception of their own, behind the deepest exit that is wanted.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from pluribus.errors import ConversionError, InputError
from pluribus.mechanisms.exits.exit_points import Exit, ExitPoints, check_inputs
from pluribus.mechanisms.exits.heads import Head, apart, keep_rows
from pluribus.mechanisms.exits.slots import Entry, Joined, Reached, Summed
from pluribus.mechanisms.exits.widening import keep_output, merge_first, widen_first, widen_output
from pluribus.mechanisms.network.dry_run import accepting, dry_run, seeded
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network, copy_module
from pluribus.mechanisms.network.outputs import Output, first_tensor, select_output, with_first
from pluribus.mechanisms.network.torch_private import buffer_table, is_run_again, parameter_table

Pair = tuple[int, int]
"""An input and a depth, both counted from 0."""
Watch = Callable[[int, Tensor], Tensor | None]
"""Callback (depth, outputs `[batch, pairs, *output]`) -> mask of the samples that continue, `[batch]`.

None stands for all of them."""


class Stop(Exception):
    """End a run whose wanted exits have all been read: the rest of the network need not run."""


class Reading:
    """Hold the callback that hooks of all exits call in the run that is under way.

    Attributes:
        reached: Callback (depth, value of the exit) -> value with which the network goes on. None where no
            run is under way, as when checkpointed code runs again during backward.
    """

    def __init__(self) -> None:
        self.reached: Callable[[int, Tensor], Tensor] | None = None

    # A copy of a network must not call back into the run of another, and callbacks cannot be pickled.
    def __deepcopy__(self, memo: dict[int, Any]) -> "Reading":
        copied = memo[id(self)] = Reading()
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return {"reached": None}


class Tap:
    """Read the value of an exit, as a forward hook.

    Args:
        reading: Holds the callback for the value.
        depth: The depth of the exit.
    """

    def __init__(self, reading: Reading, depth: int) -> None:
        self.reading, self.depth = reading, depth

    def __call__(self, layer: nn.Module, args: Any, returned: Any) -> Any:
        value = first_tensor(returned)
        if self.reading.reached is None or value is None:
            return None
        changed = self.reading.reached(self.depth, value)
        # A hook that returns None leaves what the layer returns as it is.
        if changed is value:
            return None
        return with_first(returned, changed)


class Tapped(nn.Module):
    """Run a network on several inputs at once, with an exit at every depth.

    Args:
        network: The user's module with widened first and last layers; gets hooks.
        points: The layers where it is tapped.
        inputs: How many inputs it takes at once.
        output: Selects the prediction among the returned values.

    Attributes:
        heads: One for each exit but the network's own output, which is the last depth.
        inputs: How many inputs it takes at once.
        depths: How many exits there are.
        pairs: The outputs of `forward`, input by input: each an input and a depth, from 0.
        slots: By depth, the inputs for which it makes outputs.
    """

    def __init__(self, network: nn.Module, points: ExitPoints, inputs: int, output: Output = None) -> None:
        super().__init__()
        self.network = network
        self.heads = nn.ModuleList(Head(exit, points, inputs) for exit in points.exits)
        self.inputs, self.depths, self.points, self.output = inputs, points.depths, points, output
        self.pairs: tuple[Pair, ...] = tuple(itertools.product(range(inputs), range(self.depths)))
        self.slots = [tuple(range(inputs))] * self.depths
        self._entry, self._reading = Entry(inputs, len(points.first)), Reading()
        self._ends = ""
        # By name, the shapes of tensors behind the deepest exit that were dropped.
        self._dropped: dict[str, tuple[int, ...]] = {}
        # A single input enters as it is.
        if inputs > 1:
            self._join_inputs()
        for depth, exit in enumerate(points.exits):
            network.get_submodule(exit.name).register_forward_hook(Tap(self._reading, depth))

    def _join_inputs(self) -> None:
        """Make the first layers read the inputs of all slots."""
        for number, name in enumerate(self.points.first):
            layer = self.network.get_submodule(name)
            layer.register_forward_pre_hook(Joined(self._entry, number), with_kwargs=True)
            # An embedding cannot be widened: each slot looks up its own rows, and these are summed.
            if isinstance(layer, nn.Embedding):
                layer.register_forward_hook(Summed())

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the outputs of all pairs with one sample in every slot, `[batch, pairs, *output]`."""
        return self.run([Inputs(args, kwargs)])

    def run(
        self, parts: Sequence[Inputs], pairs: Sequence[Pair] | None = None, watch: Watch | None = None
    ) -> Tensor:
        """Return the outputs of some pairs, `[batch, pairs, *output]`, in their order.

        Heads of other depths do not run, nor does what lies behind the deepest exit.

        Args:
            parts: One batch for every slot, or a single one that is put into all of them. Whatever enters the
                network behind the first layers, such as a mask, is that of the first slot.
            pairs: The pairs to compute; all there are if not given.
            watch: Called at each exit as soon as it is reached; may send samples out of the network. The
                outputs of the last depth are returned then, of the samples that got there.
        """
        pairs = self._known(self.pairs if pairs is None else pairs)
        if len(parts) not in (1, self.inputs):
            raise InputError(
                f"parts must be one batch, or one for each of {self.inputs} inputs, got {len(parts)}. "
                "Pass a single batch to put the same samples into all slots."
            )
        wanted = self._positions_by_depth(pairs)
        made = _Outputs(self, wanted, watch)
        self._enter(parts[1:])
        self._reading.reached = made.reach
        try:
            returned = self.network(*parts[0].args, **parts[0].keywords)
        except Stop:
            pass
        else:
            prediction = select_output(returned, self.output)
            made.check(prediction)
            if self.depths - 1 in wanted:
                made.values[self.depths - 1] = self._own(prediction)
                made.finish()
        finally:
            self._reading.reached = None
        return made.collect(pairs)

    def run_whole(self, inputs: Inputs) -> Tensor:
        """Return the outputs of all pairs, `[batch, pairs, *output]`, for an export of the data flow.

        No exception ends the run early, because torch.export would not survive it (2.13); what lies behind
        the deepest exit is no part of a graph that ends there.
        """
        made = _Outputs(self, self._positions_by_depth(self.pairs), None, whole=True)
        self._enter([])
        self._reading.reached = made.reach
        try:
            returned = self.network(*inputs.args, **inputs.keywords)
        finally:
            self._reading.reached = None
        if self.depths - 1 in made.wanted:
            made.values[self.depths - 1] = self._own(select_output(returned, self.output))
        return made.joined(self.pairs)

    def _positions_by_depth(self, pairs: Sequence[Pair]) -> dict[int, list[int]]:
        """Map each depth of some pairs to the positions of their inputs among its slots."""
        wanted = defaultdict[int, list[int]](list)
        for slot, depth in pairs:
            wanted[depth].append(self.slots[depth].index(slot))
        return dict(wanted)

    def _known(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        """Return these pairs; raise for none at all, or for one that is not there."""
        unknown: Any = [pair for pair in pairs if tuple(pair) not in self.pairs]
        if unknown or not pairs:
            found = unknown[0] if unknown else "none"
            raise InputError(
                f"pairs must be some of {list(self.pairs)}, an input and a depth each, got {found}. "
                "Count both from 0."
            )
        return pairs

    def _enter(self, others: Sequence[Inputs]) -> None:
        """Store the inputs of all slots but the first as they come to the first layers.

        Args:
            others: One batch for each of these slots; none where all get the same.
        """
        self._entry.kept = []
        if self.inputs == 1:
            return
        self._entry.capturing = True
        try:
            for part in others:
                self._entry.kept.append({})
                # The user's code may prepare its inputs, so it runs up to the first layers and stops there.
                with suppress(Reached):
                    self.network(*part.args, **part.keywords)
        finally:
            self._entry.capturing = False

    def _own(self, prediction: Tensor) -> Tensor:
        """Return the network's own output, `[batch, slots, *output]`."""
        if self.inputs == 1:
            return prediction.unsqueeze(1)
        # Without an axis of features, one number for each slot is all there is.
        if not self.points.output:
            return prediction.reshape(prediction.shape[0], -1)
        return apart(prediction, self.points.axis, self.points.output)

    def keep(self, pairs: Sequence[Pair], drop: bool = True) -> None:
        """Keep only these pairs, in this order, and no parameter that none of them needs.

        Args:
            pairs: Some of those that are there.
            drop: Whether layers behind the deepest of them are dropped; a run must then end before them.
        """
        deepest = max(depth for _, depth in self._known(pairs))
        for depth in range(self.depths):
            slots = tuple(slot for slot in self.slots[depth] if (slot, depth) in pairs)
            self._keep_slots(depth, slots)
        if drop and deepest < self.depths - 1:
            self._drop_behind(self.points.exits[deepest])
        self.pairs = tuple(pairs)

    def _keep_slots(self, depth: int, slots: tuple[int, ...]) -> None:
        """Keep only the outputs of these slots at one depth.

        Args:
            depth: The depth of the exit.
            slots: Some of its slots; without any, its head is dropped.
        """
        before, self.slots[depth] = self.slots[depth], slots
        own = depth == self.depths - 1
        if not slots:
            # The network's own output has no head; its layers are dropped with those behind the deepest exit.
            if not own:
                self.heads[depth] = nn.Identity()
            return
        if slots == before:
            return
        rows = [before.index(slot) for slot in slots]
        if not own:
            keep_rows(self.heads[depth].last, rows, len(before))  # type: ignore[arg-type]
            return
        for part in self.points.makers:
            keep_output(self.network.get_submodule(part.name), part.role, rows, len(before))

    def _drop_behind(self, exit: Exit) -> None:
        """Empty the parameters that an exit does not need, and the buffers of layers without any other.

        Args:
            exit: The deepest exit that is left.
        """
        needed = {id(p) for name, p in self.network.named_parameters() if name in exit.needs}
        for path, layer in self.network.named_modules():
            held = {name: p for name, p in parameter_table(layer).items() if p is not None}
            lost = {name: p for name, p in held.items() if id(p) not in needed}
            # Empty tensors stay where they were, as code may read their dtype or device.
            for name, parameter in lost.items():
                self._note_dropped(path, name, parameter)
                setattr(layer, name, nn.Parameter(_emptied(parameter), requires_grad=False))
            # A layer that still needs a parameter runs, and needs its buffers.
            if not lost or len(lost) < len(held):
                continue
            for name, buffer in buffer_table(layer).items():
                if buffer is not None:
                    self._note_dropped(path, name, buffer)
                    setattr(layer, name, _emptied(buffer))
        self._ends = exit.name

    def _note_dropped(self, path: str, name: str, tensor: Tensor) -> None:
        """Note the shape that a tensor had before it was dropped; a network may be cut several times.

        Args:
            path: Of the layer.
            name: Of the tensor in it.
            tensor: Before it is dropped.
        """
        self._dropped.setdefault(f"{path}.{name}" if path else name, tuple(tensor.shape))

    def fill_dropped(self) -> None:
        """Put zeros in place of dropped tensors, so that a run reaches its end; no exit depends on them."""
        for full, shape in self._dropped.items():
            path, _, name = full.rpartition(".")
            layer = self.network.get_submodule(path)
            zeros = getattr(layer, name).new_zeros(shape)
            is_parameter = name in parameter_table(layer)
            setattr(layer, name, nn.Parameter(zeros, requires_grad=False) if is_parameter else zeros)

    def check_goes_on(self) -> None:
        """Raise if the network would run on behind an exit after which nothing is left."""
        if self._ends:
            raise InputError(
                f"a run must end at {self._ends}, the deepest exit that is left, got an exit that cannot "
                "stop it, as it is inside of checkpointed code. Use use_reentrant=False."
            )

    def merge(self) -> None:
        """Make the first layers read one sample, for inference, where it is the same in every slot."""
        # Merging again would sum over channels that are no longer there.
        if self._entry.slots > 1:
            for name in self.points.first:
                merge_first(self.network.get_submodule(name), self.inputs)
        self._entry.slots = 1


class _Outputs:
    """Collect the outputs of one run.

    Layers behind an exit may write into its value. So heads run as soon as it comes; where they learn they
    run at the end, outside of checkpointed code, and on a copy.

    Args:
        tapped: The network that runs.
        wanted: By depth, the positions of its outputs that are wanted.
        watch: Called at each of these depths.
        whole: Whether the network runs to its end, whatever is wanted.
    """

    def __init__(
        self, tapped: Tapped, wanted: dict[int, list[int]], watch: Watch | None, whole: bool = False
    ) -> None:
        self.tapped, self.wanted, self.watch, self.whole = tapped, wanted, watch, whole
        self.values: dict[int, Tensor] = {}
        self.deepest = max(wanted)
        self.learns = torch.is_grad_enabled() and not whole
        self.early = watch is not None or not self.learns

    def reach(self, depth: int, value: Tensor) -> Tensor:
        """Store the value of an exit; stop the run behind the deepest one, or where no sample goes on.

        Args:
            depth: The depth of the exit.
            value: What the network computed there.

        Returns:
            The value with which the network goes on.
        """
        if depth not in self.wanted:
            return value
        self._store(depth, value)
        if self.whole:
            return value
        going = self._show(depth, self.watch) if self.watch else None
        all_left = going is not None and not going.any()
        ends = depth == self.deepest or all_left
        # Reentrant checkpoints run without gradients and attach them behind the code, which must end.
        inside_checkpoint = self.learns != torch.is_grad_enabled()
        if ends and not inside_checkpoint:
            raise Stop
        if depth == self.deepest:
            self.tapped.check_goes_on()
        return value if going is None else value[going]

    def _store(self, depth: int, value: Tensor) -> None:
        """Store the output of an exit, or a copy of its value where its head runs at the end."""
        if self.early:
            self.values[depth] = value
            self.values[depth] = self._predict(depth)
        elif torch.is_grad_enabled():
            self.values[depth] = value.clone()
        else:
            self.values[depth] = value

    def check(self, prediction: Tensor) -> None:
        """Raise for exits that were not reached, or that no gradient would leave.

        Args:
            prediction: The network's own output.
        """
        early = [depth for depth in self.wanted if depth < self.tapped.depths - 1]
        for depth in early:
            # As in networks with stochastic depth.
            if depth not in self.values:
                raise InputError(
                    f"every exit must be reached, got a run without {self._name(depth)}. "
                    "Switch off what skips layers in training."
                )
        if not self.learns or not is_run_again(prediction):
            return
        for depth in early:
            if not self.values[depth].requires_grad:
                raise InputError(
                    f"an exit must be the end of checkpointed code, got {self._name(depth)}, which is inside "
                    "of it. Use use_reentrant=False."
                )

    def _name(self, depth: int) -> str:
        """Return the name of the layer after which the exit of a depth lies."""
        return self.tapped.points.exits[depth].name

    def finish(self) -> None:
        """Call the callback with the network's own output."""
        if self.watch:
            self._show(self.deepest, self.watch)

    def _predict(self, depth: int) -> Tensor:
        """Return the output of the head of an exit, for all of its slots."""
        made: Tensor = self.tapped.heads[depth](self.values[depth])
        return made

    def _show(self, depth: int, watch: Watch) -> Tensor | None:
        """Call the callback with the wanted outputs of a depth; return the mask of samples that continue."""
        self.values[depth] = self.values[depth][:, self.wanted[depth]]
        return watch(depth, self.values[depth])

    def collect(self, pairs: Sequence[Pair]) -> Tensor:
        """Return the outputs of all pairs, `[batch, pairs, *output]`.

        Args:
            pairs: Inputs and depths.

        Returns:
            With a callback, the outputs of the last depth alone, for the samples that got there.
        """
        if self.watch:
            last = self.values.get(self.deepest)
            return torch.empty(0) if last is None else last
        outputs = dict(self.values)
        if not self.early:
            own = self.tapped.depths - 1
            for depth in sorted(self.wanted.keys() - {own}):
                outputs[depth] = self._predict(depth)
        each = list[Tensor]()
        for slot, depth in pairs:
            position = self.tapped.slots[depth].index(slot)
            each.append(outputs[depth][:, position])
        return torch.stack(each, dim=1)

    def joined(self, pairs: Sequence[Pair]) -> Tensor:
        """Return the outputs of all pairs as `collect` does, with as few operators as possible."""
        depths = sorted(self.values)
        outputs = [self.values[depth] for depth in depths]
        there = [(slot, depth) for depth in depths for slot in self.tapped.slots[depth]]
        if len(outputs) > 1 and list(pairs) == sorted(there) and _is_grid(there, len(depths)):
            return torch.stack(outputs, 2).flatten(1, 2)
        stack = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
        if list(pairs) == there:
            return stack
        return stack[:, [there.index((slot, depth)) for slot, depth in pairs]]


def _is_grid(pairs: Sequence[Pair], depths: int) -> bool:
    """Return whether every slot exits at every depth."""
    return len(pairs) == len({slot for slot, _ in pairs}) * depths


def tap(network: Network, points: ExitPoints, inputs: int = 1, start: str = "copy", seed: int = 0) -> Tapped:
    """Return a copy of a network that takes several inputs at once and has an exit at every depth.

    Args:
        network: The module with its example.
        points: The layers where it is tapped.
        inputs: How many inputs at once, at least 1.
        start: `copy`: with one sample in every slot, each slot's last output is that of the network;
            `fresh`: widened layers are drawn anew.
        seed: For heads and for layers that are drawn anew.
    """
    check_inputs(points, inputs)
    module = copy_module(network.module)
    widened = _widen(module, points, inputs) if inputs > 1 else []
    with seeded(seed, module.parameters()):
        tapped = Tapped(module, points, inputs, network.output)
        like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
        tapped.heads.to(like.device, like.dtype)
        if inputs > 1:
            _prove(tapped, network)
        if start == "fresh":
            _redraw(widened)
    tapped.heads.train(module.training)
    tapped.training = module.training
    return tapped


def _widen(module: nn.Module, points: ExitPoints, inputs: int) -> list[nn.Module]:
    """Widen the first layers and the last one for several inputs, and return them."""
    first = [module.get_submodule(name) for name in points.first]
    for layer in first:
        widen_first(layer, inputs)
    if not points.tail:
        _check_last(module, points)
    for part in points.makers:
        first.append(module.get_submodule(part.name))
        widen_output(first[-1], part.role, inputs)
    return first


def _redraw(layers: Sequence[nn.Module]) -> None:
    """Draw the weights of some layers anew."""
    for layer in layers:
        # Parameters that the user froze stay.
        if all(parameter.requires_grad for parameter in layer.parameters()):
            layer.reset_parameters()  # type: ignore[operator]


def _check_last(module: nn.Module, points: ExitPoints) -> None:
    """Raise if the last layer cannot be widened."""
    problem = _why_not_widened(module, points)
    if problem:
        raise ConversionError(
            f"one Linear or convolution must make the output for several inputs, got a network where "
            f"{problem}. Use inputs=1, or end the network with a layer of its own."
        )


def _why_not_widened(module: nn.Module, points: ExitPoints) -> str:
    """Return why the last layer cannot have outputs for several inputs; empty where it can.

    Args:
        module: The network.
        points: Holds the names of the first and last layers.
    """
    if points.last is None:
        return "there is none, or more than one"
    layer = module.get_submodule(points.last)
    # Widening replaces the weight, and a computed one would come back.
    if is_parametrized(layer):
        return f"the weight of {points.last} is computed"
    # Outputs of a further input would read the channels of other groups.
    if getattr(layer, "groups", 1) != 1:
        return f"{points.last} has groups={layer.groups}"
    if points.last in points.first:
        return f"{points.last or 'the network itself'} is the first layer too"
    if _shares_parameters(module, layer, points.last):
        return f"{points.last} shares its weight with another layer"
    return ""


def _shares_parameters(module: nn.Module, layer: nn.Module, name: str) -> bool:
    """Return whether another layer has a parameter of this one, as tied embeddings do."""
    own = {id(parameter) for parameter in layer.parameters()}
    for path, part in module.named_modules():
        if path == name:
            continue
        held = {id(parameter) for parameter in part.parameters(recurse=False)}
        if not own.isdisjoint(held):
            return True
    return False


def _emptied(tensor: Tensor) -> Tensor:
    """Return a tensor without entries, of the same precision and on the same device."""
    return tensor.new_empty(0, *tensor.shape[1:])


def _near(came: Tensor, expected: Tensor) -> bool:
    """Return whether all slots' outputs are the expected ones, up to the rounding of their precision."""
    # The square root of the machine's precision leaves room for sums over many channels.
    expected = expected.unsqueeze(1).expand_as(came)
    bound = float(expected.abs().nan_to_num(0.0).max()) * torch.finfo(came.dtype).eps ** 0.5
    return torch.allclose(came, expected, rtol=0, atol=bound, equal_nan=True)


def _prove(tapped: Tapped, network: Network) -> None:
    """Run one sample in all slots; raise if a slot returns something else than the network.

    Args:
        tapped: The widened network.
        network: The original one, with its example.
    """
    example, module = network.example, network.module
    with torch.no_grad(), accepting(example), dry_run(module, False):
        given = example.copy()
        expected = select_output(module(*given.args, **given.keywords), network.output)
    last = [(slot, tapped.depths - 1) for slot in range(tapped.inputs)]
    shape = (len(expected), tapped.inputs, *expected.shape[1:])
    try:
        with torch.no_grad(), dry_run(tapped, False):
            found = tapped.run([example.copy()], last)
        alike = found.shape == shape and _near(found, expected)
        problem = "" if alike else "the outputs are others than those of the network"
    # The user's code may raise anything when the number of outputs changes.
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    if problem:
        makers = ", ".join(part.name for part in tapped.points.makers)
        raise ConversionError(
            f"the outputs of {tapped.inputs} inputs must come side by side from {makers}, "
            f"got a failed run: {problem}. Use inputs=1, or let the network return what "
            f"{makers} computes."
        )
