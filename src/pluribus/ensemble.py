"""Ensemble: what `convert` returns."""

import copy
import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, overload

import torch
from torch import Tensor, nn

from pluribus.calibration.fit import fit_calibration
from pluribus.calibration_record import Calibration
from pluribus.conversion_record import Conversion
from pluribus.data.signature import Signature
from pluribus.deprecation import RenamedAttribute, renamed_arguments
from pluribus.errors import ConversionError, InputError, UnreadableError
from pluribus.export.exporting import export_file
from pluribus.export.file_format import Dynamic
from pluribus.export.source import Origin, Source
from pluribus.likelihood import Likelihood, Point
from pluribus.mechanisms.masks.code import MaskedCode
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.index import share_among
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.names import current_names, saved_tensors
from pluribus.mechanisms.members.prior import AnyMembers, WithPrior
from pluribus.mechanisms.network.batches import Batches, batches_of, count_samples
from pluribus.mechanisms.network.example import make_example
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.signature import with_signature_of
from pluribus.mechanisms.ranking.rank import Ranking, best_rows, rank_members, read_work, with_targets
from pluribus.mechanisms.running.anytime import predict_anytime
from pluribus.mechanisms.running.division import why_not_divided
from pluribus.mechanisms.running.engines import run_rows
from pluribus.mechanisms.running.explain import Explanation, explain
from pluribus.mechanisms.running.freeze import example_of, freeze, resolved
from pluribus.mechanisms.running.frozen import Frozen, LoopedRows
from pluribus.mechanisms.running.lock import Lock
from pluribus.mechanisms.running.losses import Criterion, Losses
from pluribus.mechanisms.running.made_up_size import note_made_up_size
from pluribus.mechanisms.running.no_compile import uncompiled
from pluribus.mechanisms.running.pieces import BYTES, CHUNK, MOST_BYTES, cut
from pluribus.mechanisms.running.predicting import predict_parts
from pluribus.mechanisms.running.sample_weights import check_weights
from pluribus.mechanisms.running.share import ALONE, Batch, OneOfSeveral, Share
from pluribus.mechanisms.running.specialised import cut_member
from pluribus.method import Built, Method
from pluribus.prediction import Prediction
from pluribus.ranges import check
from pluribus.saving import CALIBRATION, write_folder
from pluribus.summary import Keep, Summary
from pluribus.validation_data import read_shifted, read_validation

LOGGER = logging.getLogger("pluribus")
DROPPED = "%s drops the calibration. Call ensemble.calibrate(data) again."
NOT_CALIBRATED = "predict(%s) is not calibrated: the calibration is that of all members."
CALIBRATION_CHUNK = 512
"""Samples at a time where the user names no number: altered copies of all samples are run too."""


class Ensemble(nn.Module):
    """Many networks in one. Made by `convert`, `load` and `from_checkpoints`.

    `ensemble(x)` is `[members, batch, ...]` in train and in eval mode: the first axis always says how
    many members there are.

    Attributes:
        method: The settings it was made with.
        likelihood: What its outputs mean.
        conversion: What became of every layer.
        members: All members: which there are, what they are made of, how the user's code runs.
        network_name: The class of the network it was made from.
        seed: Of the conversion.
        selection: The choice for every layer, as files keep it.
        ranking: The rows, best first, as `rank` found them last; None before that.
        shrunk_to: Of the rows it was made with, those that `shrink` kept, in their order; None if all.
        calibration: What `calibrate` fitted; None before that, and after further training.
        trained: Whether it saw a training batch, or loaded weights that did.
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
        self.members: AnyMembers = built.members
        within = "members.learnt" if isinstance(built.members, WithPrior) else "members"
        self._no_decay = {f"{within}.{name}" for name in built.no_decay}
        self.network_name, self.seed, self.selection = network.kind, seed, list(selection)
        self.ranking: Ranking | None = None
        self.shrunk_to: tuple[int, ...] | None = None
        self.calibration: Calibration | None = None
        self.trained = False
        self._example = network.given
        # Made for the conversion; the first inputs seen tell more.
        self._guess = network.guess
        self._output = network.output
        self._training_lock = Lock()
        self.training = self.members.training = self._caller.module.training
        self.forward = with_signature_of(self.members.code.forward, self.forward)  # type: ignore[method-assign]

    @property
    def _caller(self) -> Caller:
        return self.members.code.caller

    @uncompiled
    def forward(
        self, *args: Any, members: Sequence[Any] | None = None, draws: int | None = None, **kwargs: Any
    ) -> Tensor:
        """The outputs of all members, `[members, batch, ...]`.

        Args:
            *args: The network's inputs.
            members: Exactly these rows, in the order given: by their positions in eval mode, or, for
                methods that combine options, by one option for each of `sites`.
            draws: That many fresh random rows, for methods whose members are random.
            **kwargs: The network's keyword inputs.
        """
        inputs = Inputs(args, kwargs)
        # Raise for inputs without a batch before the network fails on them.
        _ = inputs.batch
        with self._training_lock if self.training else nullcontext():
            self._settle_prior(inputs)
            self._drop_calibration_in_training()
            rows = self._rows(members, draws, self.training)
            outputs = run_rows(self.members, rows, inputs, self._caller.modes)
        self._remember(inputs)
        return outputs

    @uncompiled
    @renamed_arguments(samples="dataset_size")
    def loss(
        self,
        x: Any,
        y: Tensor,
        *,
        progress: float = 0.0,
        dataset_size: int | None = None,
        criterion: Criterion | None = None,
        weights: Tensor | None = None,
        share: Share = ALONE,
    ) -> Tensor:
        """The method's training objective on one batch, a scalar: most often the mean of the members' losses.

        Args:
            x: The inputs: a tensor, a tuple, or a dict of keyword inputs.
            y: The targets, `[batch, ...]`: class numbers, or probabilities `[batch, classes, ...]`; labels;
                or numbers. Where a sample has several, missing ones are NaN, or -100 for classes.
            progress: How much of training is done, in [0, 1]; drives schedules.
            dataset_size: The size of the training set, for methods with a prior term; the batch's.
            criterion: In place of the likelihood, a loss of one member's outputs and the targets,
                a scalar or one value per sample.
            weights: How much each sample counts, `[batch]`, or each position of a dense target, at least 0;
                losses are divided by their sum.
            share: Where several processes train one ensemble, the part of the batch that this one computes;
                `train` passes it. The objective is that of the whole batch.
        """
        check("progress", progress, float, at_least=0, at_most=1)
        check("dataset_size", dataset_size, int, at_least=1, optional=True)
        inputs = Inputs.of(x)
        self._remember(inputs)
        if not isinstance(y, Tensor) or y.ndim == 0 or y.shape[0] != inputs.batch:
            came = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise InputError(f"targets must be a tensor for {inputs.batch} samples, got {came}.")
        if weights is not None:
            check_weights(weights, y)
        self._check_share(share, inputs)
        count = share.count(inputs.batch, y.device)
        size = count if dataset_size is None else dataset_size
        with self._training_lock if self.training else nullcontext():
            self._settle_prior(inputs)
            self._drop_calibration_in_training()
            self.trained |= self.training
            rows = self._rows(training=self.training)
            parts = self.method.assign(count, rows, progress) if self.training else None
            losses = Losses(self.likelihood, criterion)
            total = self._objective(losses, (inputs, y, weights), rows, parts, progress, share, count)
            return total + self.method.penalty(self.members, count, size, progress)

    def after_step(self, progress: float) -> None:
        """Let the method update the members after a step of the optimizer; `train` calls it.

        Args:
            progress: How much of training is done, in [0, 1].
        """
        check("progress", progress, float, at_least=0, at_most=1)
        with self._training_lock, torch.no_grad():
            self._drop_calibration("further training")
            self.method.after_step(self.members, progress)

    def finish(self, loader: Iterable[Any]) -> None:
        """Let the method complete the members after training, as by their batch statistics; `train` calls it.

        Args:
            loader: Batches of training inputs, whose targets are left out; gone through several times.
        """
        batches = Batches(loader, self.members.code.forward, self.device, self.likelihood.curvature)
        with self._training_lock, torch.no_grad():
            self._drop_calibration("further training")
            self.method.finish(self.members, batches)

    def parameter_groups(self, lr: float, weight_decay: float = 0.0) -> list[dict[str, Any]]:
        """Parameter groups for an optimizer, with the method's exceptions from weight decay."""
        check("lr", lr, float, at_least=0)
        check("weight_decay", weight_decay, float, at_least=0)
        trained = [(name, p) for name, p in self.named_parameters() if p.requires_grad]
        groups = [
            {"params": [p for name, p in trained if (name in self._no_decay) == exempt], "lr": lr}
            | {"weight_decay": 0.0 if exempt else weight_decay}
            for exempt in (False, True)
        ]
        return [group for group in groups if group["params"]]

    @overload
    def predict(
        self,
        x: Any,
        *,
        chunk: int | None = None,
        best: int | None = None,
        draws: int | None = None,
        memory: int | None = None,
        exit_when: float | None = None,
        keep: Literal["members"] = "members",
        most_bytes: int = MOST_BYTES,
    ) -> Prediction: ...

    @overload
    def predict(
        self,
        x: Any,
        *,
        chunk: int | None = None,
        best: int | None = None,
        draws: int | None = None,
        memory: int | None = None,
        exit_when: float | None = None,
        keep: Keep,
        most_bytes: int = MOST_BYTES,
    ) -> Prediction | Summary: ...

    @renamed_arguments(budget="best")
    def predict(
        self,
        x: Any,
        *,
        chunk: int | None = None,
        best: int | None = None,
        draws: int | None = None,
        memory: int | None = None,
        exit_when: float | None = None,
        keep: Keep = "members",
        most_bytes: int = MOST_BYTES,
    ) -> Prediction | Summary:
        """Return the prediction of the ensemble, in eval mode and without gradients.

        Args:
            x: The inputs: a tensor, a tuple, a dict of keyword inputs, or a loader of these, whose
                batches may carry targets, which are left out.
            chunk: At most that many samples at a time, to bound the memory of activations.
            best: Only so many members, the best ones of the last `rank`.
            draws: That many fresh random members in place of those that are kept, the same for all samples.
            memory: The most bytes of activations that may be alive at once; less than what the rows need
                one by one is refused with what is needed.
            exit_when: Of networks with exits, the probability of a class, from 0 to 1, at which a sample
                leaves, at every position if there are several: what follows is not run for it.
                `prediction.spent` are its multiply-adds.
            keep: `members` keeps the outputs of all members, `[members, batch, ...]`. `summary`, or names of
                summaries such as `["labels", "entropy"]`, keeps these alone and returns a `Summary`: they are
                computed piece by piece, which bounds the memory of dense predictions.
            most_bytes: Without `chunk`, the most bytes of activations at a time: a larger batch is cut into
                pieces that fit, if its samples do not depend on one another.

        The prediction is calibrated after `calibrate`, unless `best`, `draws` or `exit_when` is given: they
        make another ensemble than the one that was calibrated.
        """
        CHUNK.check("chunk", chunk)
        check("memory", memory, int, at_least=1, optional=True)
        BYTES.check("most_bytes", most_bytes)
        check("exit_when", exit_when, float, at_least=0, at_most=1, optional=True)
        if exit_when is not None and memory is not None:
            raise InputError("memory= and exit_when= exclude each other, got both.")
        with torch.no_grad():
            rows, weights = self._counted_rows(best, draws)

        def outputs(inputs: Inputs) -> Tensor:
            return run_rows(self.members, rows, inputs, memory=memory)

        others = {"best": best, "draws": draws, "exit_when": exit_when}
        calibration = self._calibration_unless(others)
        weights = _fitted(weights, calibration)

        def predict(inputs: Inputs) -> Prediction:
            if exit_when is None:
                return self.likelihood.prediction(outputs(inputs), weights).calibrated(calibration)
            return predict_anytime(self.members, self.likelihood, rows, weights, inputs, exit_when)

        # A bound that the user gave holds for the batch as it is.
        limit = most_bytes if memory is None else None
        cache = self._caller.cache
        batches = batches_of(x, self.members.code.forward, self.device)
        pieces = (cut(batch, chunk, limit, outputs, cache, f"{len(rows)} rows") for batch in batches)
        return predict_parts(itertools.chain.from_iterable(pieces), predict, count_samples(x), keep)

    def calibrate(
        self,
        data: Any,
        *,
        level: float = 0.9,
        false_alarm: float = 0.05,
        shifted: Any = "auto",
        chunk: int | None = None,
        weights: bool | None = None,
    ) -> Calibration:
        """Fit corrections on validation data, and keep them: in predictions, files and frozen ensembles.

        Half of the data gives a temperature (of numbers, a scale of the variance) and the best score for
        strange samples; the other half gives the quantile of `prediction.sets` or `prediction.interval()`,
        and the threshold of `prediction.flagged`. A temperature below 1 is applied only if it does not raise
        the NLL on corrupted data, and so is a scale below 1 where there is such data.

        Args:
            data: `(x, y)`, a `Split`, a `Task` (its validation data), or a loader of such pairs: data that
                was not trained on, at least four samples; 40 and more are useful.
            level: Share of samples whose set or interval holds the truth, in (0, 1).
            false_alarm: Share of samples like these that are flagged as strange, in (0, 1).
            shifted: Corrupted validation data, as `data`. "auto" corrupts images itself; None does without.
            chunk: At most that many samples at a time, to bound memory.
            weights: Fit how much each member counts, shrunk towards equal weights; `ensemble.weights` are
                then these. None does so if the method has `fit_weights=True` and the likelihood a density.

        Example:
            >>> ensemble = pluribus.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=4))
            >>> calibration = ensemble.calibrate((torch.randn(100, 3), torch.arange(100) % 2), level=0.8)
            >>> ensemble.predict(torch.zeros(5, 3)).sets.shape
            torch.Size([5, 2])
        """
        check("level", level, float, above=0, below=1)
        check("false_alarm", false_alarm, float, above=0, below=1)
        check("chunk", chunk, int, at_least=1, optional=True)
        check("weights", weights, bool, optional=True)
        if weights is None:
            # Only methods whose members differ in quality, as exits do, have the setting. Numbers without a
            # model of noise have no likelihood to fit weights by.
            weights = getattr(self.method, "fit_weights", False) and not isinstance(self.likelihood, Point)
        self.calibration = None
        self.calibration = fit_calibration(
            lambda inputs: self.predict(inputs, chunk=chunk or CALIBRATION_CHUNK),
            read_validation(data, self.members.code.forward, self.device),
            level,
            false_alarm,
            read_shifted(shifted, self.members.code.forward, self.device),
            auto=isinstance(shifted, str),
            weigh=weights,
        )
        for note in self.calibration.notes:
            LOGGER.info(note)
        return self.calibration

    def explain(
        self,
        x: Any,
        *,
        members: Sequence[Any] | None = None,
        draws: int | None = None,
        memory: int | None = None,
    ) -> Explanation:
        """Return what the rows of `ensemble(x)` share in eval mode, where they differ, and what that saves.

        Args:
            x: The inputs: a tensor, a tuple, or a dict of keyword inputs.
            members: Exactly these rows, as for `ensemble(x, members=...)`.
            draws: That many fresh rows, likewise.
            memory: The most bytes of activations that may be alive at once.
        """
        check("memory", memory, int, at_least=1, optional=True)
        return explain(self.members, self._rows(members, draws), Inputs.of(x), memory)

    def rank(
        self, data: Any, metric: str = "nll", *, per_multiply_add: bool = False, chunk: int | None = None
    ) -> Ranking:
        """The rows of `ensemble(x)`, best first, for `predict(x, best=...)` and for `shrink`.

        Members, who count by their weights, are chosen one after the other, each the best addition to those
        before it on data that was not trained on. Rank again after further training.

        Args:
            data: `(x, y)`, or a loader of such batches.
            metric: `nll`, `brier` or `accuracy` of classes; `rmse`, `mae` or `kl` of numbers, with a model of
                noise `nll` and `log_predictive_density` too. For `kl` the targets are means and standard
                deviations, `[batch, ..., 2]`, that those of the members' means are to match.
            per_multiply_add: Whether the gain of a member counts for each multiply-add it adds, so that
                members which share layers with those before are preferred.
            chunk: At most that many samples at a time, to bound memory.
        """
        check("per_multiply_add", per_multiply_add, bool)
        predictions, targets, work = [], [], None
        for inputs, y in with_targets(data, self.members.code.forward):
            inputs = inputs.to(self.device)
            if per_multiply_add and work is None:
                work = read_work(self.members, inputs)
            predictions.append(self.predict(inputs, chunk=chunk).raw)
            targets.append(y)
        prediction = type(predictions[0]).concatenate(predictions)
        self.ranking = rank_members(prediction, torch.cat(targets), metric, work)
        return self.ranking

    def shrink(self, rows: Sequence[int]) -> "Ensemble":
        """A smaller ensemble of these rows alone, without the weights that none of them uses; the weights
        under masks, which are everybody's, stay.

        Args:
            rows: Positions in eval mode, in the order that they are to have; `ranking[:P]`, for example.
        """
        last = self.members.count - 1
        fits = isinstance(rows, Sequence) and len(rows) > 0
        if not fits or any(type(row) is not int or not 0 <= row <= last for row in rows):
            raise InputError(f"rows must be positions from 0 to {last}, at least one, got {rows!r}.")
        small = copy.deepcopy(self, {id(self.members): self.members.keep(rows)})
        before = range(last + 1) if self.shrunk_to is None else self.shrunk_to
        small.shrunk_to = tuple(before[row] for row in rows)
        small.ranking = self.ranking and self.ranking.among(rows)
        small._drop_calibration("shrink")
        note = f"shrunk to rows {', '.join(map(str, rows))} of {last + 1}"
        small.conversion = replace(self.conversion, notes=(*self.conversion.notes, note))
        return small

    @property
    def sites(self) -> tuple[str, ...]:
        """The layers of which a row chooses one option each, in the order in which `members=` names them."""
        return self.members.index.sites

    @property
    def case(self) -> str:
        """The name of the method, or of the case of it that the settings make."""
        return self.members.index.case or self.method.kind()

    network = RenamedAttribute("network_name")
    binding = RenamedAttribute("members")
    kind = RenamedAttribute("case")

    @property
    def weights(self) -> Tensor:
        """How much each row of eval mode counts, `[members]`; sums to one. `calibrate` may have fitted it."""
        return _fitted(self._own_weights, self.calibration)

    @property
    def _own_weights(self) -> Tensor:
        """Return the weights of the method, whatever was fitted."""
        return self.members.index.weights().to(self.device)

    def nested_weights(self, draws: int) -> Tensor:
        """How much each row would count with the first `draws` draws alone, `[members]`.

        `prediction.weighted(ensemble.nested_weights(20))` is what 20 draws say, without running them again.
        Where all rows are kept with their probabilities, they are drawn from these, the same ones always.
        """
        return self.members.index.weights(draws).to(self.device)

    @property
    def device(self) -> torch.device:
        """The device of the ensemble's tensors."""
        tensors = itertools.chain(self.parameters(), self.buffers())
        return next((tensor.device for tensor in tensors), torch.device("cpu"))

    def member(self, row: int) -> nn.Module:
        """Row `row` of eval mode alone, a plain module in eval mode with copies of its tensors.

        It is of the user's own class, unless something must be added to it (a kept random draw, a
        prior network) or it is cut out of a masked network, and returns the prediction alone where the
        network returns more.
        """
        picked = self.members.index.pick([row])[0]
        if isinstance(self.members, Members) and isinstance(self.members.code, MaskedCode):
            with suppress(ConversionError):
                return cut_member(self.members, picked, self._example)
        return self.members.as_module(picked)

    def freeze(self, examples: Sequence[Any] | None = None, memory: int | None = None) -> Frozen:
        """Return all members for inference alone, as one plain graph of torch operators.

        The graph is read with an example, and computes what the members compute at two sizes of batch, or
        it is not used: then members run one after the other, and `notes` says why. What members share is
        computed once, BatchNorm becomes part of the layer before it, drawn weights and masks are stored,
        and masked members are cut out.

        Args:
            examples: One input of each kind that the frozen ensemble is to take: a tensor, a tuple or a dict.
                Inputs of other sizes, the batch excepted, or of another precision are refused. Without
                examples, the one of `convert` or the first inputs seen. Without any, one is made up; a
                warning and `notes` say so if the network takes inputs of other sizes too.
            memory: The most bytes of activations that `predict` may need; it takes so many samples at a
                time, and the order of steps is chosen for it as far as possible.
        """
        check("memory", memory, int, at_least=1, optional=True)
        if examples is not None and (not isinstance(examples, list | tuple) or not examples):
            raise InputError(f"examples must be a list of at least one input, got {examples!r}.")
        given: list[Inputs | None] = [self._example or self._made_up()]
        if examples is not None:
            given = [Inputs.of(one) for one in examples]
        frozen = self._frozen(given, memory)
        if examples is None and self._example is None:
            # A member that is cut out takes inputs of one size alone, the module itself of all.
            network = self.members.as_module(self.members.index.pick([0])[0])
            note_made_up_size(frozen, network, given[0], stacklevel=2)
        facts = {"method": self.method.to_dict(), "case": self.case, "network": self.network_name}
        frozen.calibration, frozen.origin = self.calibration, Origin(given[0], facts)
        return frozen

    def _made_up(self) -> Inputs | None:
        """Return inputs made from the network; None where none could be made."""
        if self._guess is None:
            try:
                self._guess = example_of(self.members)
            except ConversionError:
                return None
        return self._guess

    def _frozen(self, examples: Sequence[Inputs | None], memory: int | None) -> Frozen:
        """Return all members as graphs, or looped where their data flow cannot be read."""
        try:
            graphs = [freeze(self.members, example, memory) for example in examples]
        except UnreadableError as error:
            looped = LoopedRows(resolved(self.members))
            notes = [f"members are looped: {error}"]
            return Frozen([looped], (), (), self.weights.clone(), notes, self.likelihood, memory)
        return Frozen.of(graphs, self.weights.clone(), self.likelihood, memory)

    def export(
        self,
        path: str | Path,
        format: str = "onnx",
        *,
        members: bool = False,
        dynamic: Dynamic | None = None,
        level: float = 0.9,
        signature: Signature | None = None,
    ) -> Path:
        """Write the ensemble as one file that runs without this library, and return its path.

        The outputs are the summaries of `predict`, by name. The file is run on fresh inputs and compared with
        `predict` before it is put in its place, with a description of inputs and outputs beside it.

        Args:
            path: The file; the suffix of the format is added where it has none.
            format: `onnx`, `pt2` or `openvino`.
            members: Whether the raw outputs of all members are among the outputs.
            dynamic: By input and axis, names of sizes that may vary, such as `{"x": {2: "height"}}`; the
                batch always may.
            level: Of the interval of a Gaussian, in (0, 1).
            signature: Scaling, columns and class names of the task, for the description.

        Raises:
            ExportError: A package is missing, the members are no single graph, or the file does not compute
                what `predict` computes.

        Example:
            >>> ensemble.export("model.onnx")  # doctest: +SKIP
            PosixPath('model.onnx')
        """
        if self.device.type != "cpu":
            moved = copy.deepcopy(self).cpu()
            return moved.export(
                path, format, members=members, dynamic=dynamic, level=level, signature=signature
            )
        example = self._example or self._made_up() or make_example(self.member(0))
        # The sizes that `dynamic` names are free: no others need an example.
        frozen = self.freeze([example] if self._example or dynamic else None)
        source = frozen.export_source(self.predict, signature)
        source = replace(source, read_with=partial(self._read_with, source, signature))
        return export_file(path, source, format=format, members=members, dynamic=dynamic, level=level)

    def _read_with(self, source: Source, signature: Signature | None, dynamic: Dynamic) -> Source | None:
        """Return an export's source, read with free sizes; None where the network cannot be read so."""
        example = source.example_with(dynamic)
        frozen = self._frozen([example], None)
        if not frozen.kinds:
            return None
        frozen.calibration, frozen.origin = self.calibration, Origin(example, source.facts)
        return frozen.export_source(self.predict, signature)

    def save(self, path: str | Path) -> None:
        """Writes a folder with the weights (safetensors) and the settings (JSON)."""
        output = self._output
        settings = {
            "network": self.network_name,
            "method": self.method.to_dict(),
            "likelihood": self.likelihood.to_dict(),
            "selection": self.selection,
            "output": output if isinstance(output, str | int) else None,
            "output_is_function": callable(output),
            "seed": self.seed,
            "shrunk_to": self.shrunk_to,
            "ranking": self.ranking and asdict(self.ranking),
            CALIBRATION: self.calibration and self.calibration.to_dict(),
        }
        tensors = saved_tensors(self.state_dict())
        fitted = self.calibration.tensors() if self.calibration else {}
        tensors |= {f"{CALIBRATION}.{name}": tensor for name, tensor in fitted.items()}
        write_folder(path, settings, tensors)

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *others: Any) -> None:
        """Load state dicts of version 0.1 too, whose tensors had other names."""
        saved = {name.removeprefix(prefix) for name in state}
        for old, new in current_names(self.state_dict(), saved).items():
            state[prefix + new] = state.pop(prefix + old)
        self.trained = True
        self._drop_calibration("loading other weights")
        super()._load_from_state_dict(state, prefix, *others)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """The example goes along with the tensors, to another precision or device."""
        self._example = self._example and self._example.each(fn)
        self._guess = self._guess and self._guess.each(fn)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self

    def _calibration_unless(self, others: Mapping[str, object]) -> Calibration | None:
        """Return the calibration; none, with a note, where a prediction is by other members than fitted."""
        given = [name for name, value in others.items() if value is not None]
        if self.calibration is None or not given:
            return self.calibration
        LOGGER.warning(NOT_CALIBRATED, f"{given[0]}=")
        return None

    def _drop_calibration(self, why: str) -> None:
        if self.calibration is not None:
            LOGGER.warning(DROPPED, why)
            self.calibration = None

    def _drop_calibration_in_training(self) -> None:
        # Steps change weights, and a pass in train mode changes statistics.
        if self.training:
            self._drop_calibration("further training")

    def _settle_prior(self, inputs: Inputs) -> None:
        """Give the norms of prior networks the statistics of the first training batch."""
        wanted = self.training and getattr(self.method, "settle_prior", False)
        if wanted and isinstance(self.members, WithPrior) and self.members.is_unsettled():
            self.members.settle(inputs)

    def _remember(self, inputs: Inputs) -> None:
        """Keeps two samples to read the network's data flow with, where no example was given."""
        if self._example is None:
            self._example = inputs.take(slice(0, 2)).copy()

    def _rows(
        self, members: Sequence[Any] | None = None, draws: int | None = None, training: bool = False
    ) -> Sequence[Any]:
        if members is not None and draws is not None:
            raise InputError("members= and draws= exclude each other, got both.")
        if draws is not None:
            check("draws", draws, int, at_least=1)
            return self.members.index.draw(draws, training)
        if members is None:
            return self.members.index.rows(training)
        if not isinstance(members, Sequence) or not members:
            raise InputError(f"members must be a list of at least one row, got {members!r}.")
        return self.members.index.pick(members)

    def _counted_rows(self, best: int | None, draws: int | None) -> tuple[Sequence[Any], Tensor]:
        """Rows of eval mode and how much each counts: fresh ones, the best ones, or all."""
        if draws is None:
            chosen, weights = best_rows(self.ranking, best), self._own_weights
            return self._rows(chosen), weights if chosen is None else share_among(weights, chosen)
        if best is not None:
            raise InputError("best= and draws= exclude each other, got both.")
        return self._rows(draws=draws), torch.full((draws,), 1 / draws, device=self.device)

    def _check_division(self, rows: Sequence[Any], inputs: Inputs, part: Tensor) -> None:
        """Raise if samples depend on one another, for a method that gives each member a part of them."""
        settings = {"repeat": "repeat=True", "divide": "divide=False"}
        remedy = next((text for name, text in settings.items() if hasattr(self.method, name)), None)
        # Slots of one run see the whole batch in several orders.
        if remedy is None:
            return
        reason = why_not_divided(self.members, rows, inputs, part)
        if reason:
            name = type(self.method).__name__
            raise InputError(
                f"samples must not depend on one another where {name} divides a batch among its members, "
                f"got a network that runs on all {inputs.batch} samples and {reason}. "
                f"Use {name}({remedy}), which gives all samples to every member."
            )

    def _check_share(self, share: object, inputs: Inputs) -> None:
        """Raise for what is no share, and if samples that depend on one another would be divided."""
        if not isinstance(share, Share):
            raise InputError(
                f"share must be a Share of the batch, got {share!r}. Leave it out in one process."
            )
        if not isinstance(share, OneOfSeveral) or share.taken:
            return
        rows = self.members.index.rows(training=False)
        mine = share.of_part(torch.arange(inputs.batch, device=self.device))
        reason = why_not_divided(self.members, rows, inputs, mine)
        if reason:
            raise InputError(
                "samples must not depend on one another where several processes divide a batch, got a "
                f"network that runs on all {inputs.batch} samples and {reason}. Train in one process."
            )

    def _objective(
        self,
        losses: Losses,
        batch: Batch,
        rows: Sequence[Any],
        parts: Sequence[Tensor] | None,
        progress: float,
        share: Share,
        count: int,
    ) -> Tensor:
        """Compute the method's objective from the rows' losses, each on the samples that the row sees."""
        modes = self._caller.modes
        if parts is None:
            inputs, y, weights = share.of_batch(batch)
            with share.drawing(count, y.device):
                means = losses.of_batch(self.members, rows, inputs, y, modes, weights)
            # Rows of training are drawn for it and count alike.
            shares = torch.full_like(means, 1 / len(rows)) if self.training else self.weights.to(means)
        else:
            inputs, y, weights = batch
            parts = [part.to(y.device) for part in parts]
            rows = [row for row, part in zip(rows, parts, strict=True) if len(part)]
            parts = [part for part in parts if len(part)]
            self._check_division(rows, inputs, parts[0])
            mine = [share.of_part(part) for part in parts]
            means = losses.of_parts(self.members, rows, inputs, y, mine, modes, weights)
            sizes = means.new_tensor([len(part) for part in parts])
            shares = sizes / sizes.sum()
        means = share.mean(means, parts, batch)
        return self.method.combine(means, shares, self.members, progress)

    def __repr__(self) -> str:
        return f"Ensemble({self.method}, {self.likelihood}, network={self.network_name})"


def _fitted(weights: Tensor, calibration: Calibration | None) -> Tensor:
    """Return the weights of a calibration that has some, in place of these."""
    if calibration is None or calibration.weights is None:
        return weights
    return calibration.weights.to(weights)
