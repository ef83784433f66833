"""The parts that training loops of other libraries have in common: Lightning's and Hugging Face's.

Each step of such a loop is `read_batch`, `ensemble.loss`, a step of the optimizer, `ensemble.after_step`.
After the last step comes `complete`.
"""

import logging
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from pluribus.data.batch import Batch, Names
from pluribus.data.split import Split
from pluribus.ensemble import Ensemble
from pluribus.errors import InputError
from pluribus.mechanisms.network.batches import accepted_by
from pluribus.metrics import METRICS
from pluribus.metrics.positions import hard_targets
from pluribus.prediction import Prediction
from pluribus.training.clipping import clip_members

LOGGER = logging.getLogger("pluribus")
SCORES = ("nll", "gaussian_nll", "rmse")
"""Metrics of a validation set; the first that suits the prediction is used."""
ORDERS = (
    "%s gives each of %d members an order of the samples of its own. In a loop of another library each "
    "member gets its part of every batch: give batches of %d times the size, and train for %d times as long."
)
SEVERAL_PROCESSES = (
    "the ensemble is neither finished nor calibrated, because %d processes have a part of the data each. "
    "Call ensemble.finish(loader) and ensemble.calibrate(data) in one process."
)


def read_batch(ensemble: Ensemble, raw: Any) -> Batch:
    """Return inputs, targets and weights of a batch as a loader gives it.

    Args:
        ensemble: Its network tells which entries of a dict are inputs.
        raw: Pairs, tuples that end with the target, or dicts with an entry such as `labels`.
    """
    batch = Names().unpack(raw)
    return Batch(accepted_by(batch.inputs, ensemble.members.code.forward), batch.y, batch.weights)


def warn_of_orders(ensemble: Ensemble) -> None:
    """Log that members share out each batch, where the method gives each its own order of the samples."""
    orders = ensemble.method.data_orders
    if orders > 1:
        LOGGER.warning(ORDERS, ensemble.method.kind(), orders, orders, orders)


def clip_separately(ensemble: Ensemble, max_norm: float) -> bool:
    """Clip the gradient of each member if members train apart, and return whether they do."""
    separate = ensemble.method.is_separate(ensemble.members)
    if separate:
        clip_members(ensemble, max_norm)
    return separate


def score(ensemble: Ensemble, prediction: Prediction, target: Tensor) -> tuple[str, Tensor]:
    """Return the name and the value of a prediction's score: its NLL, or the RMSE of point predictions."""
    name = next(one for one in SCORES if METRICS[one].suits(prediction))
    value = METRICS[name](prediction, hard_targets(target, ensemble.likelihood))
    return name, prediction.members.new_tensor(value)


def complete(ensemble: Ensemble, loader: Iterable[Any], validation: Any, processes: int) -> None:
    """Finish the ensemble after the last step, and calibrate it.

    Args:
        ensemble: It ends in eval mode.
        loader: Batches of the training data.
        validation: What `Split` takes: a loader or dataset to calibrate by; None does not calibrate.
        processes: How many train together.
    """
    ensemble.eval()
    if processes > 1:
        LOGGER.warning(SEVERAL_PROCESSES, processes)
        return
    ensemble.finish(loader)
    if validation is None:
        return
    try:
        ensemble.calibrate(validation if isinstance(validation, Split) else Split(validation))
    # Hours of training must not be lost because targets suit no set or interval.
    except InputError as error:
        LOGGER.warning("the ensemble is not calibrated: %s", error)
