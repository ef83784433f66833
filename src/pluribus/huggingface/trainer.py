"""Hugging Face's `Trainer` for ensembles: its arguments, datasets, collators, callbacks and checkpoints."""

from collections.abc import Sequence
from typing import Any, final

from torch import Tensor, nn
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from pluribus.data.split import Split
from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError
from pluribus.huggingface.objective import Objective
from pluribus.training.other_loops import clip_separately, complete, warn_of_orders

LABELS = "labels"


@final
class MethodSteps(TrainerCallback):
    """Give an objective the progress of training, and let the method update its members after each step.

    Args:
        objective: What the trainer trains.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Set the progress before the batches of a step."""
        self.objective.progress = _share(state.global_step, state)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **others: Any
    ) -> None:
        """Update the members; the trainer counts the step after this call."""
        self.objective.ensemble.after_step(_share(state.global_step + 1, state))


def _share(step: int, state: TrainerState) -> float:
    return min(1.0, step / state.max_steps) if state.max_steps > 0 else 0.0


@final
class EnsembleTrainer(Trainer):
    """Train an ensemble with Hugging Face's `Trainer`; it takes all other arguments of `Trainer` too.

    Batches are dicts with `labels`. The loss is the objective of the method, weight decay leaves out what the
    method excludes, and members that share nothing have their gradients clipped apart. After the last step
    the method completes its members, and the ensemble is calibrated where there is a dataset for it.
    `compute_metrics` gets pooled logits: argmax is the label, softmax the probabilities of the ensemble.

    Args:
        model: The ensemble. It is trained in place and ends in eval mode.
        args: A `TrainingArguments`.
        calibration_dataset: Samples to calibrate by after training, which were not trained on.
        uncertainty: Summaries such as `mutual_information` that `compute_metrics` and `predict` get:
            predictions are then a tuple of the logits and these.

    Raises:
        SettingError: Label smoothing, a loss function or pushing to the Hub while training is wanted.
    """

    def __init__(
        self,
        model: Ensemble,
        args: TrainingArguments | None = None,
        *others: Any,
        calibration_dataset: Any = None,
        uncertainty: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.objective: Objective = Objective(model, uncertainty)
        self.ensemble: Ensemble = model
        self.calibration_dataset = calibration_dataset
        if args is not None:
            _check_arguments(args)
        if options.get("compute_loss_func") is not None:
            raise SettingError(
                "compute_loss_func must be None, because the method has the loss, got a function. "
                "Choose a likelihood in pluribus.convert."
            )
        super().__init__(self.objective, args, *others, **options)
        # The trainer looks for labels in the class of a model, which knows nothing of the network.
        self.label_names = self.args.label_names or [LABELS]
        # The objective is a mean over a batch, which the trainer has to divide by accumulated batches.
        self.model_accepts_loss_kwargs = False
        self.add_callback(MethodSteps(self.objective))

    def train(self, *args: Any, **options: Any) -> Any:
        """Train, complete the members and calibrate; `Trainer.train` describes the arguments."""
        warn_of_orders(self.ensemble)
        loader = self.get_train_dataloader()
        self.objective.dataset_size = self.num_examples(loader)
        output = super().train(*args, **options)
        complete(self.ensemble, loader, self._validation(), self.args.world_size)
        return output

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return parameters with weight decay: those of `Trainer`, without the exceptions of the method."""
        exempt: set[int] = set()
        for group in self.ensemble.parameter_groups(lr=0.0, weight_decay=1.0):
            if group["weight_decay"] == 0:
                exempt.update(map(id, group["params"]))
        parameters = dict(model.named_parameters())
        names = super().get_decay_parameter_names(model)
        return [name for name in names if id(parameters[name]) not in exempt]

    def _clip_grad_norm(self, model: nn.Module) -> Any:
        """Clip gradients as `Trainer` does; of members that share nothing, each by its own norm."""
        separate = self.ensemble.method.is_separate(self.ensemble.members)
        if not separate:
            return super()._clip_grad_norm(model)  # type: ignore[no-untyped-call]
        # An infinite norm clips nothing, undoes the scaling of half precision, and returns the norm to log.
        norm: Tensor | None = self.accelerator.clip_grad_norm_(model.parameters(), float("inf"))
        clip_separately(self.ensemble, self.args.max_grad_norm)
        return norm

    def _validation(self) -> Split | None:
        """Return the samples to calibrate by, put together as the trainer does."""
        if self.calibration_dataset is None:
            return None
        loader = self.get_eval_dataloader(self.calibration_dataset)
        return Split(loader.dataset, collate=loader.collate_fn, target=self.label_names[0])


def _check_arguments(args: TrainingArguments) -> None:
    """Raise for settings that do not reach an ensemble."""
    if args.label_smoothing_factor:
        raise SettingError(
            f"label_smoothing_factor must be 0, got {args.label_smoothing_factor}. "
            "Give labels as probabilities of classes instead."
        )
    if args.push_to_hub:
        raise SettingError(
            "push_to_hub must be False while training, got True. "
            "Call pluribus.huggingface.push_to_hub(ensemble, repo_id) afterwards."
        )
