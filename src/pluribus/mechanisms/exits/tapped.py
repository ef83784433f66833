"""Tapping: a network that takes several inputs at once and has an exit at every depth.

The user's code runs as it is. Hooks join the inputs of all slots before the first layers, read values at
the exits, and stop the run, by an exception of their own, behind the deepest exit that was asked for.
"""

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
from pluribus.mechanisms.exits.widening import merge_first, widen_first, widen_last
from pluribus.mechanisms.network.dry_run import accepting, dry_run, seeded
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network, copy_module
from pluribus.mechanisms.network.outputs import Output, first_tensor, select_output, with_first
from pluribus.mechanisms.network.torch_private import buffer_table, is_run_again, parameter_table

Pair = tuple[int, int]
"""An input and a depth, both counted from 0."""
Watch = Callable[[int, Tensor], Tensor | None]
"""Of a depth and its outputs `[batch, pairs, *output]`, which samples go on, `[batch]`; None is all."""


class Stop(Exception):
    """All that was asked for has been seen: the rest of the network need not run."""


class Reading:
    """What the exits of one run do with their values; hooks of all of them share one.

    Attributes:
        reached: Called with the depth and the value of an exit that is reached; gives the value with which
            the network goes on. None where no run is under way, as when code runs again during backward.
    """

    def __init__(self) -> None:
        self.reached: Callable[[int, Tensor], Tensor] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Reading":
        copied = memo[id(self)] = Reading()
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return {"reached": None}


class Tap:
    """A hook that reads the value of an exit.

    Args:
        reading: What is done with it.
        depth: Of the exit.
    """

    def __init__(self, reading: Reading, depth: int) -> None:
        self.reading, self.depth = reading, depth

    def __call__(self, layer: nn.Module, args: Any, returned: Any) -> Any:
        value = first_tensor(returned)
        if self.reading.reached is None or value is None:
            return None
        changed = self.reading.reached(self.depth, value)
        return None if changed is value else with_first(returned, changed)


class Tapped(nn.Module):
    """A network that takes several inputs at once and has an exit at every depth.

    Args:
        network: The user's module with widened first and last layers; gets hooks.
        points: Where it is tapped.
        inputs: How many inputs it takes at once.
        output: What of the returned values is the prediction.

    Attributes:
        heads: One for each exit but the network's own output, which is the last depth.
        inputs: How many inputs it takes at once.
        depths: How many exits there are.
        pairs: What `forward` gives, input by input: each an input and a depth, from 0.
        slots: Of every depth, the inputs for which it makes outputs.
    """

    def __init__(self, network: nn.Module, points: ExitPoints, inputs: int, output: Output = None) -> None:
        super().__init__()
        self.network = network
        self.heads = nn.ModuleList(Head(exit, points, inputs) for exit in points.exits)
        self.inputs, self.depths, self.points, self.output = inputs, points.depths, points, output
        self.pairs: tuple[Pair, ...] = tuple((i, j) for i in range(inputs) for j in range(self.depths))
        self.slots = [tuple(range(inputs))] * self.depths
        self._entry, self._reading = Entry(inputs, len(points.first)), Reading()
        self._ends = ""
        for number, name in enumerate(points.first if inputs > 1 else ()):
            layer = network.get_submodule(name)
            layer.register_forward_pre_hook(Joined(self._entry, number), with_kwargs=True)
            if isinstance(layer, nn.Embedding):
                layer.register_forward_hook(Summed())
        for depth, exit in enumerate(points.exits):
            network.get_submodule(exit.name).register_forward_hook(Tap(self._reading, depth))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The outputs of all pairs with one sample in every slot, `[batch, pairs, *output]`."""
        return self.run([Inputs(args, kwargs)])

    def run(
        self, parts: Sequence[Inputs], pairs: Sequence[Pair] | None = None, watch: Watch | None = None
    ) -> Tensor:
        """The outputs of some pairs, `[batch, pairs, *output]`, in their order.

        Heads of other depths do not run, nor does what lies behind the deepest exit.

        Args:
            parts: One batch for every slot, or a single one that is put into all of them. What enters the
                network behind the first layers, such as a mask, is that of the first slot.
            pairs: What to compute; all there are if not given.
            watch: Called at each exit as soon as it is reached; may send samples out of the network. The
                outputs of the last depth are returned then, of the samples that got there.
        """
        pairs = self._known(self.pairs if pairs is None else pairs)
        if len(parts) not in (1, self.inputs):
            raise InputError(
                f"there must be one part, or one for each of {self.inputs} inputs, however: {len(parts)}."
            )
        by_depth = {j: [self.slots[j].index(i) for i, at in pairs if at == j] for j in {j for _, j in pairs}}
        made = _Outputs(self, by_depth, watch)
        self._enter(parts[1:])
        self._reading.reached = made.reach
        try:
            returned = self.network(*parts[0].args, **parts[0].keywords)
        except Stop:
            pass
        else:
            prediction = select_output(returned, self.output)
            made.check(prediction)
            if self.depths - 1 in by_depth:
                made.values[self.depths - 1] = self._own(prediction)
                made.finish()
        finally:
            self._reading.reached = None
        return made.collect(pairs)

    def _known(self, pairs: Sequence[Pair]) -> Sequence[Pair]:
        """Refuses pairs that are not there."""
        unknown = [pair for pair in pairs if tuple(pair) not in self.pairs]
        if unknown or not pairs:
            raise InputError(
                f"pairs must be some of {list(self.pairs)}, an input and a depth each, however: "
                f"{unknown[0] if unknown else 'none'}."
            )
        return pairs

    def _enter(self, others: Sequence[Inputs]) -> None:
        """Keeps what the inputs of all slots but the first bring to the first layers."""
        self._entry.kept = []
        self._entry.capturing = True
        try:
            for part in others if self.inputs > 1 else ():
                self._entry.kept.append({})
                with suppress(Reached):
                    self.network(*part.args, **part.keywords)
        finally:
            self._entry.capturing = False

    def _own(self, prediction: Tensor) -> Tensor:
        """The network's own output, `[batch, slots, *output]`."""
        if self.inputs == 1:
            return prediction.unsqueeze(1)
        if not self.points.output:
            return prediction.reshape(prediction.shape[0], -1)
        return apart(prediction, self.points.axis, self.points.output)

    def keep(self, pairs: Sequence[Pair]) -> None:
        """Leaves only these pairs, in this order, and no parameter that none of them needs."""
        deepest = max(depth for _, depth in self._known(pairs))
        for depth in range(self.depths):
            slots = tuple(i for i in self.slots[depth] if (i, depth) in pairs)
            own = depth == self.depths - 1
            if slots and slots != self.slots[depth]:
                layer = self.network.get_submodule(str(self.points.last)) if own else self.heads[depth].last
                rows = [self.slots[depth].index(slot) for slot in slots]
                keep_rows(layer, rows, len(self.slots[depth]))  # type: ignore[arg-type]
            elif not slots and not own:
                self.heads[depth] = nn.Identity()
            self.slots[depth] = slots
        if deepest < self.depths - 1:
            self._drop_behind(self.points.exits[deepest])
        self.pairs = tuple(pairs)

    def _drop_behind(self, exit: Exit) -> None:
        """Empties parameters that a value does not need, and the buffers of layers that have no other; code
        that asks for their dtype or device still finds it.
        """
        needed = {id(p) for name, p in self.network.named_parameters() if name in exit.needs}
        for layer in self.network.modules():
            held = {name: p for name, p in parameter_table(layer).items() if p is not None}
            lost = {name: p for name, p in held.items() if id(p) not in needed}
            for name, parameter in lost.items():
                setattr(layer, name, nn.Parameter(_emptied(parameter), requires_grad=False))
            for name, buffer in buffer_table(layer).items() if lost and len(lost) == len(held) else ():
                setattr(layer, name, None if buffer is None else _emptied(buffer))
        self._ends = exit.name

    def check_goes_on(self) -> None:
        """Refuses to run on behind an exit where nothing is left."""
        if self._ends:
            raise InputError(
                f"a run must end at {self._ends}, the deepest exit that is left, however: it is inside of "
                "what is checkpointed. Use use_reentrant=False."
            )

    def merge(self) -> None:
        """Makes the first layers read one sample, for inference, where it is the same in every slot."""
        for name in self.points.first if self._entry.slots > 1 else ():
            merge_first(self.network.get_submodule(name), self.inputs)
        self._entry.slots = 1


class _Outputs:
    """The outputs of one run.

    Layers behind an exit may write into its value. So heads run as soon as it comes; where they learn they
    run at the end, outside of what is checkpointed, and of a copy.

    Args:
        tapped: What runs.
        wanted: By depth, the positions of its outputs that are asked for.
        watch: Called at each of these depths.
    """

    def __init__(self, tapped: Tapped, wanted: dict[int, list[int]], watch: Watch | None) -> None:
        self.tapped, self.wanted, self.watch = tapped, wanted, watch
        self.values: dict[int, Tensor] = {}
        self.deepest = max(wanted)
        self.learns = torch.is_grad_enabled()
        self.early = watch is not None or not self.learns

    def reach(self, depth: int, value: Tensor) -> Tensor:
        """Keeps the value of an exit; stops the run behind the deepest, or where no sample goes on."""
        if depth not in self.wanted:
            return value
        self.values[depth] = value.clone() if torch.is_grad_enabled() and not self.early else value
        if self.early:
            self.values[depth] = self._predict(depth)
        going = self._show(depth, self.watch) if self.watch else None
        ends = depth == self.deepest or (going is not None and not going.any())
        if ends and self.learns == torch.is_grad_enabled():  # else the gradient is attached behind it
            raise Stop
        if depth == self.deepest:
            self.tapped.check_goes_on()
        return value if going is None else value[going]

    def check(self, prediction: Tensor) -> None:
        """Refuses exits that were not reached, or that no gradient would leave."""
        early = [depth for depth in self.wanted if depth < self.tapped.depths - 1]
        missed = [depth for depth in early if depth not in self.values]
        if missed:
            raise InputError(
                "every exit must be reached, however: the network did not run "
                f"{self.tapped.points.exits[missed[0]].name}. Switch off what skips layers in training."
            )
        cut = [depth for depth in early if self.learns and not self.values[depth].requires_grad]
        if cut and is_run_again(prediction):
            raise InputError(
                "an exit must be the end of what is checkpointed, however: "
                f"{self.tapped.points.exits[cut[0]].name} is inside of it. Use use_reentrant=False."
            )

    def finish(self) -> None:
        """Shows the network's own output."""
        if self.watch:
            self._show(self.deepest, self.watch)

    def _predict(self, depth: int) -> Tensor:
        """What the head of an exit makes of its value, for all of its slots."""
        made: Tensor = self.tapped.heads[depth](self.values[depth])
        return made

    def _show(self, depth: int, watch: Watch) -> Tensor | None:
        self.values[depth] = self.values[depth][:, self.wanted[depth]]
        return watch(depth, self.values[depth])

    def collect(self, pairs: Sequence[Pair]) -> Tensor:
        """The outputs of all pairs; with a watch, those of the last depth alone."""
        if self.watch:
            last = self.values.get(self.deepest)
            return torch.empty(0) if last is None else last
        own, outputs = self.tapped.depths - 1, dict(self.values)
        for depth in () if self.early else sorted(self.wanted.keys() - {own}):
            outputs[depth] = self._predict(depth)
        return torch.stack([outputs[j][:, self.tapped.slots[j].index(i)] for i, j in pairs], dim=1)


def tap(network: Network, points: ExitPoints, inputs: int = 1, start: str = "copy", seed: int = 0) -> Tapped:
    """A copy of a network that takes several inputs at once and has an exit at every depth.

    Args:
        network: The module with its example.
        points: Where it is tapped.
        inputs: How many inputs at once, at least 1.
        start: `copy`: with one sample in every slot, each slot's last output is that of the network;
            `fresh`: widened layers are drawn anew.
        seed: Of heads and of what is drawn anew.
    """
    check_inputs(points, inputs)
    module = copy_module(network.module)
    widened = [module.get_submodule(name) for name in points.first] if inputs > 1 else []
    for layer in widened:
        widen_first(layer, inputs)
    if inputs > 1:
        last = _last(module, points)
        widen_last(last, inputs)
        widened.append(last)
    with seeded(seed, module.parameters()):
        tapped = Tapped(module, points, inputs, network.output)
        like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
        tapped.heads.to(like.device, like.dtype)
        if inputs > 1:
            _prove(tapped, network)
        for layer in widened if start == "fresh" else ():
            if all(parameter.requires_grad for parameter in layer.parameters()):  # frozen ones stay
                layer.reset_parameters()  # type: ignore[operator]
    tapped.heads.train(module.training)
    tapped.training = module.training
    return tapped


def _last(module: nn.Module, points: ExitPoints) -> nn.Module:
    """The last layer, if it can be widened."""
    layer = None if points.last is None else module.get_submodule(points.last)
    problem = ""
    if layer is None:
        problem = "there is none, or more than one"
    elif is_parametrized(layer):
        problem = f"the weight of {points.last} is computed"
    elif getattr(layer, "groups", 1) != 1:
        problem = f"{points.last} has groups={layer.groups}"
    elif points.last in points.first:
        problem = f"{points.last or 'the network itself'} is the first layer too"
    elif any(
        parameter is other
        for parameter in layer.parameters()
        for path, part in module.named_modules()
        if path != points.last
        for other in part.parameters(recurse=False)
    ):
        problem = f"{points.last} shares its weight with another layer"
    if problem or layer is None:
        raise ConversionError(
            f"one Linear or convolution must make the output for several inputs, however: {problem}. "
            "Use inputs=1, or end the network with a layer of its own."
        )
    return layer


def _emptied(tensor: Tensor) -> Tensor:
    return tensor.new_empty(0, *tensor.shape[1:])


def _near(came: Tensor, expected: Tensor) -> bool:
    """Whether all slots' outputs are the expected ones, up to the rounding of their precision."""
    expected = expected.unsqueeze(1).expand_as(came)
    bound = float(expected.abs().nan_to_num(0.0).max()) * torch.finfo(came.dtype).eps ** 0.5
    return torch.allclose(came, expected, rtol=0, atol=bound, equal_nan=True)


def _prove(tapped: Tapped, network: Network) -> None:
    """Runs one sample in all slots: every slot must get what the network gives."""
    example, module = network.example, network.module
    with torch.no_grad(), accepting(example), dry_run(module, False):
        given = example.copy()
        expected = select_output(module(*given.args, **given.keywords), network.output)
    last = [(slot, tapped.depths - 1) for slot in range(tapped.inputs)]
    try:
        with torch.no_grad(), dry_run(tapped, False):
            came = tapped.run([example.copy()], last)
        near = came.shape == (len(expected), tapped.inputs, *expected.shape[1:]) and _near(came, expected)
        problem = "" if near else "the outputs are others than those of the network"
    except Exception as error:  # whatever the user's code raises for another number of outputs
        problem = f"{type(error).__name__}: {error}"
    if problem:
        raise ConversionError(
            f"the outputs of {tapped.inputs} inputs must come side by side from {tapped.points.last}, "
            f"however: {problem}. Use inputs=1, or let the network return what {tapped.points.last} computes."
        )
