"""Frozen: all members of an ensemble for inference alone."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self, overload

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.node import map_aggregate

from pluribus.calibration_record import Calibration
from pluribus.data.signature import Signature as TaskSignature
from pluribus.errors import ExportError, InputError, PluribusError
from pluribus.export.compiled import CompiledGraph, find_runtime
from pluribus.export.exporting import export_file
from pluribus.export.file_format import Dynamic
from pluribus.export.runtime import Graph
from pluribus.export.source import Origin, Source
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.graph.compact import RECIPES, compact
from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.graph.pack_masks import pack_masks
from pluribus.mechanisms.graph.program import SINGLE_SAMPLE
from pluribus.mechanisms.members.cache import Cache
from pluribus.mechanisms.members.prior import AnyMembers
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engines import run_rows
from pluribus.mechanisms.running.explain import Explanation, Saving, explain
from pluribus.mechanisms.running.freeze import FIXED_BATCH, Graphed
from pluribus.mechanisms.running.frozen_file import check_savable, write_frozen
from pluribus.mechanisms.running.kinds import Kind, has_free_batch, made_up, takes_any_batch
from pluribus.mechanisms.running.no_compile import uncompiled
from pluribus.mechanisms.running.pieces import BYTES, CHUNK, MOST_BYTES, can_be_cut, cut
from pluribus.mechanisms.running.predicting import predict_parts
from pluribus.mechanisms.running.quick import UNFIT, QuickGraph, reading
from pluribus.mechanisms.running.simulate import without_values
from pluribus.prediction import Prediction
from pluribus.summary import Keep, Summary

MADE_UP = "the size of inputs was made up, because no example was given"
"""The note of a frozen ensemble whose network takes inputs of other sizes too."""


class LoopedRows(nn.Module):
    """All rows of eval mode by the engines, for a network whose data flow cannot be read.

    Args:
        members: For inference alone.
    """

    def __init__(self, members: AnyMembers) -> None:
        super().__init__()
        self.members = members

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode whatever is asked."""
        self.members.train(False)
        return super().train(False)

    @uncompiled
    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the outputs of all rows, `[rows, batch, ...]`."""
        return run_rows(self.members, self.members.index.rows(training=False), Inputs(args, kwargs))


class Frozen(nn.Module):
    """All members for inference: `frozen(x)` is `[members, batch, ...]`, always in eval mode.

    It holds one plain graph for each kind of inputs that it was made for, and no state: threads may share it.

    Args:
        networks: A graph for each kind of inputs, or members that are looped.
        kinds: The kind of inputs of each graph; none for looped members.
        summaries: Of each graph, what its rows share.
        weights: How much each member counts, `[members]`.
        notes: What became part of what, or why members are looped.
        likelihood: What the outputs mean.
        memory: The most bytes of activations of `predict`; None is no bound.
        quick: The graphs as they run; derived from the graphs where they are not given.

    Attributes:
        notes: As above.
        likelihood: As above.
        kinds: As above.
        origin: The ensemble that it is made of, for files; None for one that was made by hand.
        calibration: Corrects predictions as those of the ensemble; None if nothing was calibrated.
        engine: What runs the graphs: `torch`, or the name that `with_engine` got.
    """

    calibration: Calibration | None = None
    engine: str = "torch"

    def __init__(
        self,
        networks: Sequence[GraphModule | LoopedRows],
        kinds: Sequence[Kind],
        summaries: Sequence[Explanation],
        weights: Tensor,
        notes: Sequence[str],
        likelihood: Likelihood,
        memory: int | None = None,
        quick: Sequence[QuickGraph | None] = (),
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.kinds, self.summaries = tuple(kinds), tuple(summaries)
        self.notes, self.likelihood, self.memory = tuple(notes), likelihood, memory
        # No buffer: a cast to half precision must not round it.
        self.weights = weights
        # Equal weights need not be checked in every prediction.
        self._uniform = bool((weights == weights[0]).all())
        self.origin: Origin | None = None
        self._counted = Cache()
        # A tuple: looking a module up in a ModuleList takes as long as a small operator.
        self._graphs: tuple[QuickGraph | LoopedRows | CompiledGraph, ...] = self._quick(quick)
        self.train(False)

    @classmethod
    def of(
        cls,
        graphs: Sequence[Graphed],
        weights: Tensor,
        likelihood: Likelihood,
        memory: int | None = None,
    ) -> "Frozen":
        """Return the frozen ensemble of a graph for each kind of inputs."""
        notes = dict.fromkeys(note for graph in graphs for note in graph.notes)
        modules, kinds = [graph.module for graph in graphs], [graph.kind for graph in graphs]
        summaries = [graph.summary for graph in graphs]
        quick = [graph.quick for graph in graphs]
        return cls(modules, kinds, summaries, weights, tuple(notes), likelihood, memory, quick)

    def _quick(
        self, known: Sequence[QuickGraph | None] = ()
    ) -> tuple[QuickGraph | LoopedRows | CompiledGraph, ...]:
        """Return what runs for each kind of inputs; looped members, of any kind, run as they are.

        Args:
            known: For each graph, what was derived from it already, if anything.
        """
        found = list[QuickGraph | LoopedRows | CompiledGraph]()
        for place, network in enumerate(self.networks):
            if isinstance(network, LoopedRows):
                found.append(network)
                continue
            assert isinstance(network, GraphModule)
            quick = known[place] if known else None
            if quick is not None:
                found.append(quick)
                continue
            kind = self.kinds[place]
            held = _first_float(network)
            device = self.weights.device if held is None else held.device
            found.append(QuickGraph(network, made_up(kind, device), all(has_free_batch(kind))))
        return tuple(found)

    @property
    def module(self) -> nn.Module:
        """The graph of the first kind of inputs, which takes the network's inputs by position."""
        return self.networks[0]

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs of `module`, as the network's `forward` calls them."""
        return self.kinds[0].names if self.kinds else ()

    def train(self, mode: bool = True) -> Self:
        """Stay in eval mode whatever is asked."""
        return super().train(False)

    def with_engine(self, engine: str) -> "Frozen":
        """Return the same ensemble, run by another engine on this machine.

        The engine compiles the graphs now, and its outputs are compared with theirs at three sizes of batch.
        The result predicts, saves and exports as this one; threads may share it.

        Args:
            engine: `onnxruntime`, `openvino` or `inductor`, the compiler of torch.

        Raises:
            SettingError: There is no such engine.
            ExportError: Its packages are missing, members are looped, or it computes something else.

        Example:
            >>> quick = ensemble.freeze().with_engine("onnxruntime")  # doctest: +SKIP
        """
        find_runtime(engine)
        if not self.kinds:
            raise ExportError(
                f"the ensemble must be a graph to be run by another engine, got: {'; '.join(self.notes)}. "
                "Use the frozen ensemble as it is."
            )
        other = copy.deepcopy(self)
        graphs = [other._graph(place) for place in range(len(other.kinds))]
        other._graphs = tuple(CompiledGraph(engine, graph) for graph in graphs)
        other.engine = engine
        return other

    def _graph(self, place: int) -> Graph:
        """Return the graph of one kind of inputs, with inputs that it takes."""
        kind, network = self.kinds[place], self.networks[place]
        assert isinstance(network, GraphModule)
        held = _first_float(network)
        device = self.weights.device if held is None else held.device
        example = made_up(kind, device)
        given = self.origin.example if self.origin is not None else None
        if given is not None:
            moved = _like(given, held)
            # Real inputs are better than made-up ones; of further kinds none is kept.
            if not kind.signature.why_not(moved):
                example = tuple(kind.inputs(moved.doubled() if moved.batch == 1 else moved))
        return Graph(network, kind.names, example, has_free_batch(kind))

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the outputs of all members, `[members, batch, ...]`.

        Raises:
            InputError: The inputs are of another kind than those it was made for.
        """
        with torch.no_grad():
            # The most frequent case first, because small networks run in microseconds.
            if not kwargs and self.kinds and self.kinds[0].accepts(args):
                place = 0
            else:
                place, args, kwargs = self._choose(args, kwargs)
            _check_has_numbers((*args, *kwargs.values()), self.weights)
            try:
                outputs: Tensor = self._graphs[place].forward(*args, **kwargs)
            except torch.OutOfMemoryError:
                raise
            except UNFIT as error:
                raise _failed(error, Inputs(args, kwargs)) from error
            return outputs

    def _choose(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, tuple[Any, ...], dict[str, Any]]:
        """Return the graph that takes some inputs, and its arguments."""
        inputs = Inputs(args, kwargs)
        # Raise for inputs without a batch before the network fails on them.
        _ = inputs.batch
        if not self.kinds:
            return 0, args, kwargs
        for place, kind in enumerate(self.kinds):
            if not kind.signature.why_not(inputs):
                return place, tuple(kind.inputs(inputs)), {}
        made_for = " or ".join(kind.signature.example for kind in self.kinds)
        known = [note for note in (MADE_UP, FIXED_BATCH) if note in self.notes]
        reason = f": {known[0]}" if known else ""
        remedy = "Pass freeze(examples=[...]) one input of each kind."
        if any(kind.signature.lacks_batch(inputs) for kind in self.kinds):
            reason, remedy = "", SINGLE_SAMPLE
        raise InputError(
            f"expected inputs of the kind that the ensemble was frozen for, {made_for}, got {inputs}{reason}"
            f". {remedy}"
        )

    @overload
    def predict(
        self,
        x: Any,
        *,
        chunk: int | None = None,
        keep: Literal["members"] = "members",
        most_bytes: int = MOST_BYTES,
    ) -> Prediction: ...

    @overload
    def predict(
        self, x: Any, *, chunk: int | None = None, keep: Keep, most_bytes: int = MOST_BYTES
    ) -> Prediction | Summary: ...

    def predict(
        self,
        x: Any,
        *,
        chunk: int | None = None,
        keep: Keep = "members",
        most_bytes: int = MOST_BYTES,
    ) -> Prediction | Summary:
        """Return the prediction of all members, as the ensemble's own `predict`.

        Args:
            x: The inputs: a tensor, a tuple, or a dict of keyword inputs.
            chunk: At most that many samples at a time, to bound the memory of activations; at most as many
                as `freeze(memory=...)` allows.
            keep: `members`, `summary` or names of summaries, as for the ensemble.
            most_bytes: Without `chunk` and `freeze(memory=...)`, the most bytes of activations at a time.
        """
        CHUNK.check("chunk", chunk)
        BYTES.check("most_bytes", most_bytes)
        inputs = Inputs.of(x)
        if self.memory is not None:
            most = self._most_samples(inputs, self.memory)
            chunk = most if chunk is None else min(chunk, most)
        # Other engines do not tell what memory they take; the graph that they run does.
        pieces = cut(inputs, chunk, most_bytes, self._graph_outputs, self._counted)
        return predict_parts(pieces, self._predict, inputs.batch, keep)

    def _outputs(self, inputs: Inputs) -> Tensor:
        outputs: Tensor = self(*inputs.args, **inputs.keywords)
        return outputs

    def _graph_outputs(self, inputs: Inputs) -> Tensor:
        """Return the outputs of all members, computed by torch whatever the engine is."""
        place, args, kwargs = self._choose(inputs.args, inputs.keywords)
        _check_has_numbers((*args, *kwargs.values()), self.weights)
        with _explaining(Inputs(args, kwargs)):
            outputs: Tensor = self.networks[place](*args, **kwargs)
        return outputs

    def _predict(self, inputs: Inputs) -> Prediction:
        outputs = self._outputs(inputs)
        prediction = self.likelihood.prediction(outputs, None if self._uniform else self.weights)
        return prediction if self.calibration is None else prediction.calibrated(self.calibration)

    def _most_samples(self, inputs: Inputs, memory: int) -> int:
        """Return how many samples need at most that many bytes of activations."""
        place = self._choose(inputs.args, inputs.keywords)[0]
        if self.kinds and not takes_any_batch(self.kinds[place].signature):
            return self._all_samples(inputs, memory, "the network takes no other batch")
        one, two = (self._measured(Inputs.joined([inputs.take(slice(0, 1))] * count))[1] for count in (1, 2))
        each = max(two - one, 1)
        if one > memory:
            raise InputError(
                f"memory must be at least {one} bytes for one sample, got {memory}. Freeze with more memory, "
                "or shrink the ensemble."
            )
        most = int(1 + (memory - one) // each)
        if most >= inputs.batch or can_be_cut(inputs, self._graph_outputs, self._counted):
            return most
        return self._all_samples(inputs, memory, "they depend on one another")

    def _all_samples(self, inputs: Inputs, memory: int, reason: str) -> int:
        """Return the number of samples of a batch that cannot be cut; raise where it needs more memory.

        Args:
            inputs: The batch.
            memory: The most bytes of activations.
            reason: Why it cannot be cut.
        """
        whole = self._measured(inputs)[1]
        if whole > memory:
            raise InputError(
                f"memory must suffice for {inputs.batch} samples at once, because {reason}, got {memory} "
                f"bytes where this graph needs {whole}. Freeze with more memory, or pass fewer samples."
            )
        return inputs.batch

    def _measured(self, inputs: Inputs) -> tuple[int, int]:
        """Return the multiply-adds and the most bytes of activations alive at once.

        A graph runs without values. Other engines do not tell what memory they take; the plain graph that
        they run does.
        """
        place, args, _ = self._choose(inputs.args, inputs.keywords)
        network, runs = self.networks[place], self._graphs[place]
        if not isinstance(network, GraphModule):
            # Code may branch on values, so it runs. The first run fills caches, which belong to no batch.
            self._outputs(inputs)
            with torch.no_grad(), Meter() as meter:
                self._outputs(inputs)
            return meter.multiply_adds, meter.peak
        run, most = type(network).forward, None
        if isinstance(runs, QuickGraph):
            most = runs.most_samples(args)
            # Without values no shapes could be computed.
            run = runs.code(next(inputs.tensors()).device)
        tensors = dict(network.named_parameters()) | dict(network.named_buffers())
        with (
            _explaining(inputs),
            torch.no_grad(),
            without_values(tensors, Inputs(args, {})) as (fake, given),
            Meter() as meter,
        ):
            held = reading(network, fake)
            torch.cat([run(held, *piece.args) for piece in given.chunks(most)], dim=1)
        return meter.multiply_adds, meter.peak

    def save(self, path: str | Path) -> None:
        """Write a folder with the tensors (safetensors) and the graphs (JSON), for `pluribus.load_frozen`.

        Args:
            path: The folder; an earlier frozen ensemble there is replaced.

        Raises:
            InputError: Members are looped, or an operator is none of torch's that files may name.
        """
        check_savable(list(self.networks))
        write_frozen(
            path,
            list(self.networks),
            self.kinds,
            self.summaries,
            self.weights,
            self.notes,
            self.likelihood,
            self.memory,
            self.calibration,
        )

    def explain(self, x: Any) -> Explanation:
        """Return what the rows of `frozen(x)` share, where they differ, and what that saves."""
        inputs = Inputs.of(x)
        network = self.networks[0]
        if isinstance(network, LoopedRows):
            members = network.members
            return explain(members, members.index.rows(training=False), inputs)
        place = self._choose(inputs.args, inputs.keywords)[0]
        summary = self.summaries[place]
        if summary.multiply_adds is None:
            return summary
        work, peak = self._measured(inputs)
        alone = summary.multiply_adds.alone * inputs.batch
        if summary.making is not None:
            alone += summary.making.alone
        found = replace(
            summary, multiply_adds=Saving(work, alone), peak_bytes=Saving(peak, peak), making=None
        )
        if summary.written_bytes is None:
            return found
        written = summary.written_bytes
        scaled = Saving(written.planned * inputs.batch, written.alone * inputs.batch)
        return replace(found, written_bytes=scaled)

    def export(
        self,
        path: str | Path,
        format: str = "onnx",
        *,
        members: bool = False,
        dynamic: Dynamic | None = None,
        level: float = 0.9,
        signature: TaskSignature | None = None,
    ) -> Path:
        """Write all members as one file that runs without this library; the same as `Ensemble.export`.

        `dynamic` may name the sizes alone that the graph lets vary; a graph takes those of its example, and
        `Ensemble.export` reads the network again with the others free.
        """
        if self.weights.device.type != "cpu":
            moved = copy.deepcopy(self).cpu()
            return moved.export(
                path, format, members=members, dynamic=dynamic, level=level, signature=signature
            )
        source = self.export_source(self.predict, signature)
        _check_free(self.kinds[0], dynamic or {})
        return export_file(path, source, format=format, members=members, dynamic=dynamic, level=level)

    def export_source(
        self, predict: Callable[[Inputs], Prediction], signature: TaskSignature | None
    ) -> Source:
        """Return what an export needs.

        Args:
            predict: Computes what the file must compute.
            signature: Of the task; None if it is not known.

        Raises:
            ExportError: Members are looped, or there is no example.
        """
        if not self.kinds:
            raise ExportError(
                f"the ensemble must be one graph to be exported, got: {'; '.join(self.notes)}. "
                "Use the frozen ensemble in PyTorch, or change the line that torch.export cannot read."
            )
        if self.origin is None or self.origin.example is None:
            raise ExportError(
                "an example of the inputs is needed to check the file, got none: folders of frozen ensembles "
                "hold none. Export the ensemble, or ensemble.freeze(examples=[x])."
            )
        facts = {**self.origin.facts, "notes": list(self.notes)}
        if signature is not None:
            facts["classes"] = list(signature.class_names) or signature.classes
            facts["preprocessing"] = signature.to_dict()
        example = _like(self.origin.example, _first_float(self.module))
        graph = self.module
        assert isinstance(graph, GraphModule)
        return Source(
            module=graph,
            small=pack_masks(compact(graph)),
            names=self.input_names,
            select=self.kinds[0].inputs,
            example=example,
            likelihood=self.likelihood,
            weights=self.weights,
            predict=predict,
            calibration=self.calibration,
            facts=facts,
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Take inputs of the precision, and compute on the device, that it is moved to."""
        if self.engine != "torch":
            raise InputError(
                "a frozen ensemble must be run by torch to be moved or cast, got the engine "
                f"{self.engine!r}. Move it first: frozen.to(...).with_engine({self.engine!r})."
            )
        self.kinds = tuple(replace(kind, signature=kind.signature.cast(fn)) for kind in self.kinds)
        self.weights = self.weights.to(fn(torch.empty(0)).device)
        # Kept now, because torch changes parameters themselves.
        before = [_place_of(network) for network in self.networks]
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for network, old in zip(self.networks, before, strict=True):
            if not isinstance(network, GraphModule):
                continue
            # Recipes are those of the tensors before; a file holds the moved ones whole.
            network.meta.pop(RECIPES, None)
            changes = dict(zip(old, _place_of(network), strict=True))
            for part in network.modules():
                # Rows may call a graph of their own.
                if isinstance(part, GraphModule):
                    _adapt(part, changes)
        self._graphs = self._quick()
        return self


def _check_free(kind: Kind, dynamic: Dynamic) -> None:
    """Raise `ExportError` for a free size that a graph takes as a number.

    Args:
        kind: Of the inputs of the graph.
        dynamic: By input and axis, the names of free sizes; those that there are not are refused elsewhere.
    """
    for name, place in zip(kind.names, kind.places, strict=True):
        form = kind.signature.forms[place]
        assert isinstance(form, tuple)
        held = dict(enumerate(form[1]))
        for axis, size in dynamic.get(name, {}).items():
            if axis and held.get(axis) is not None:
                raise ExportError(
                    f"dynamic must name sizes that the graph lets vary, got {size!r}, axis {axis} of input "
                    f"{name}: a frozen ensemble holds a size of its example as a number, here {held[axis]}. "
                    "Export the ensemble, which reads the network with this size free."
                )


@contextmanager
def _explaining(inputs: Inputs) -> Iterator[None]:
    """Raise our own error where operators of a graph fail.

    Args:
        inputs: Of the graph.
    """
    try:
        yield
    except (torch.OutOfMemoryError, PluribusError):
        raise
    except UNFIT as error:
        raise _failed(error, inputs) from error


def _check_has_numbers(values: Sequence[Any], weights: Tensor) -> None:
    """Raise for inputs without numbers where the graph has some, and the other way round.

    torch would compute with memory that nobody has written (2.13).

    Args:
        values: The inputs.
        weights: A tensor that moves with the graph.
    """
    for value in values:
        if isinstance(value, Tensor) and (value.device.type == "meta") != weights.is_meta:
            raise InputError(
                f"inputs must be on the device of the frozen ensemble, {weights.device}, got one on "
                f"{value.device}. Move the inputs: x.to({str(weights.device)!r})."
            )


def _failed(error: Exception, inputs: Inputs) -> InputError:
    """Return the error for inputs on which a graph failed."""
    reason = (str(error).strip() or repr(error)).splitlines()[0].removesuffix(".")
    return InputError(
        f"the frozen ensemble failed on {inputs}: {reason}. Check devices, types and indices, or call the "
        "ensemble itself, which names the layer."
    )


def _first_float(module: nn.Module) -> Tensor | None:
    """Return a tensor of real numbers; None if there is none."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor
    return None


def _place_of(module: nn.Module) -> tuple[Any, ...]:
    """Return precision and device of the real numbers of a module; nothing if there are none.

    Not a tensor itself: torch moves a parameter by exchanging its values.
    """
    held = _first_float(module)
    return () if held is None else (held.dtype, held.device)


def _like(example: Inputs, held: Tensor | None) -> Inputs:
    """Return an example in the precision and on the device of a graph."""
    if held is None:
        return example
    like = held
    return example.each(
        lambda tensor: tensor.to(like) if tensor.is_floating_point() else tensor.to(like.device)
    )


def _adapt(network: GraphModule, changes: dict[Any, Any]) -> None:
    """Replace precisions and devices among the arguments of operators by those of the moved tensors."""
    changed = False

    def moved(value: Any) -> Any:
        nonlocal changed
        if not isinstance(value, torch.dtype | torch.device) or changes.get(value, value) == value:
            return value
        changed = True
        return changes[value]

    for node in network.graph.nodes:
        node.args = map_aggregate(node.args, moved)
        node.kwargs = map_aggregate(dict(node.kwargs), moved)
    if changed:
        network.recompile()
