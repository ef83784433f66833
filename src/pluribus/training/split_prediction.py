"""Predict all samples of a split, batch by batch, in bounded memory."""

from collections.abc import Callable, Iterator

from torch import Tensor

from pluribus.data.batch import Batch
from pluribus.data.split import Split
from pluribus.ensemble import Ensemble
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.mechanisms.running.frozen import Frozen
from pluribus.metrics.positions import hard_targets
from pluribus.metrics.tally import Tally
from pluribus.prediction import Prediction

CHUNK = 512
MOST_AT_ONCE = 2**24
"""Outputs of members that one batch may have: 64 MiB in float32."""


def predictions(
    ensemble: Ensemble, split: Split, chunk: int = CHUNK, runner: "Ensemble | Frozen | None" = None
) -> Iterator[tuple[Batch, Prediction]]:
    """Yield the batches of a split, on the device of the ensemble, with their raw predictions.

    Args:
        ensemble: Its network decides which entries of samples are inputs.
        split: The samples.
        chunk: The most samples at a time; fewer where the outputs of a sample are many.
        runner: In place of the ensemble, its frozen form.
    """
    run, forward = runner or ensemble, ensemble.members.code.forward
    if not len(split):
        return
    # Images and texts have an output for every position.
    first = split.example(1)
    tried = run.predict(accepted_by(first.inputs, forward).to(ensemble.device))
    chunk = max(1, min(chunk, MOST_AT_ONCE // max(tried.members.numel(), 1)))
    for batch in split.read(chunk):
        inputs = accepted_by(batch.inputs, forward).to(ensemble.device)
        # A calibration is measured apart; weights are chosen by what members predict.
        yield batch.to(ensemble.device), run.predict(inputs, chunk=chunk).raw


def tally_split(
    ensemble: Ensemble,
    split: Split,
    chunk: int = CHUNK,
    runner: "Ensemble | Frozen | None" = None,
    in_units: Callable[[Prediction, Tensor | None], tuple[Prediction, Tensor | None]] | None = None,
    on_batch: Callable[[Batch, Prediction, Tensor | None], None] | None = None,
) -> Tally:
    """Return the tally of a split.

    Args:
        ensemble: As for `predictions`.
        split: The samples; those without targets have no metrics.
        chunk: The most samples at a time.
        runner: In place of the ensemble, its frozen form.
        in_units: Brings predictions and targets into the units of the data; None leaves them as they are.
        on_batch: Callback, called with each batch, its predictions and its targets.
    """
    tally = Tally()
    for batch, prediction in predictions(ensemble, split, chunk, runner):
        target = None if batch.y is None else hard_targets(batch.y, ensemble.likelihood)
        if in_units is not None:
            prediction, target = in_units(prediction, target)
        tally.add(prediction, target)
        if on_batch is not None:
            on_batch(batch, prediction, target)
    return tally
