"""An ensemble with the interface of a Hugging Face model: inputs and labels to a loss and logits."""

from collections.abc import Sequence
from typing import Any, final

from torch import Tensor, nn

from pluribus.ensemble import Ensemble
from pluribus.errors import InputError
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.signature import with_signature_of
from pluribus.prediction import ContinuousPrediction, DiscretePrediction, Prediction
from pluribus.ranges import invalid
from pluribus.training.other_loops import score


@final
class Objective(nn.Module):
    """Return the objective of an ensemble in train mode, and its pooled prediction in eval mode.

    In train mode `{"loss": ...}` is the objective of the method. In eval mode `loss` is the score of the
    mixture (its NLL; of point predictions the RMSE), and `logits` are the logarithms of its probabilities,
    or the means of numbers. Summaries that `uncertainty` names follow.

    Args:
        ensemble: The ensemble.
        uncertainty: Summaries of a prediction, such as `mutual_information`.

    Attributes:
        progress: How much of training is done, in [0, 1]; the trainer sets it.
        dataset_size: The size of the training set; the trainer sets it.
    """

    def __init__(self, ensemble: Ensemble, uncertainty: Sequence[str] = ()) -> None:
        super().__init__()
        if not isinstance(ensemble, Ensemble):
            raise invalid("model", "an Ensemble, made by pluribus.convert", ensemble)
        self.ensemble, self.uncertainty = ensemble, tuple(uncertainty)
        self.progress = 0.0
        self.dataset_size: int | None = None
        # The trainer passes the columns of a dataset that `forward` names.
        network = ensemble.members.code.forward
        self.forward = with_signature_of(network, self.forward, ("labels",))  # type: ignore[method-assign]

    def forward(self, *args: Any, labels: Tensor | None = None, **kwargs: Any) -> dict[str, Tensor]:
        """Return the loss, and in eval mode the pooled prediction.

        Args:
            *args: The network's inputs.
            labels: Targets; needed in train mode.
            **kwargs: The network's keyword inputs; entries that it does not accept are left out.
        """
        inputs = accepted_by(Inputs(args, kwargs), self.ensemble.members.code.forward)
        if not self.training:
            return self._evaluated(inputs, labels)
        if labels is None:
            raise InputError(
                f"batches must hold labels to train on, got {', '.join(kwargs) or 'inputs'} alone. "
                "Name the column of targets labels."
            )
        loss = self.ensemble.loss(inputs, labels, progress=self.progress, dataset_size=self.dataset_size)
        return {"loss": loss}

    def _evaluated(self, inputs: Inputs, labels: Tensor | None) -> dict[str, Tensor]:
        prediction = self.ensemble.predict(inputs)
        found = {} if labels is None else {"loss": score(self.ensemble, prediction, labels)[1]}
        found["logits"] = pooled(prediction)
        for name in self.uncertainty:
            if name not in prediction.summaries:
                raise invalid("uncertainty", f"some of {', '.join(prediction.summaries)}", name)
            found[name] = getattr(prediction, name)
        return found


def pooled(prediction: Prediction) -> Tensor:
    """Return the logarithms of a mixture's probabilities, `[batch, outcomes, ...]`, or its means."""
    if isinstance(prediction, DiscretePrediction):
        return prediction.log_probabilities
    assert isinstance(prediction, ContinuousPrediction)
    return prediction.mean
