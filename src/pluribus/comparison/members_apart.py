"""Train the members of a deep ensemble as separate jobs, and join them.

Members that share no trained tensor are separate trainings in one step. Trained apart from the same initial
weights, with the same batches, they end at the same weights, on as many machines as there are members.
"""

import copy
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from pluribus.calibration.fit import LEAST_SAMPLES
from pluribus.comparison.executors import opened
from pluribus.comparison.submission import ONE_RUN, Submission
from pluribus.comparison.workers import Lost
from pluribus.conversion import convert
from pluribus.data.task import Task, check_task
from pluribus.ensemble import Ensemble
from pluribus.errors import PluribusError, SettingError
from pluribus.likelihood import Likelihood
from pluribus.loading import from_models
from pluribus.mechanisms.members.prior import WithPrior
from pluribus.methods.deep_ensembles import DeepEnsembles
from pluribus.methods.single import Single
from pluribus.training import Training, train
from pluribus.training.hardware import Hardware


@dataclass(frozen=True)
class MemberJob:
    """The training of one member.

    Attributes:
        number: Of the member.
        network: The member with its initial weights.
        likelihood: Meaning of its outputs.
        task: The data.
        training: Settings, the same for all members.
        hardware: Device and precision.
    """

    number: int
    network: nn.Module
    likelihood: Likelihood
    task: Task
    training: Training
    hardware: Hardware


def train_members(
    ensemble: Ensemble,
    task: Task,
    training: Training,
    *,
    executor: Executor | str,
    out: str | Path = "pluribus_runs/members",
    hardware: Hardware | None = None,
    calibrate: bool = True,
) -> Ensemble:
    """Train each member of a deep ensemble as a job of its own, and return the joined ensemble.

    It ends at the weights of `train(ensemble, task, training)`, up to rounding, unless the network draws
    random numbers, as Dropout does.

    Args:
        ensemble: Made by `DeepEnsembles`; it stays as it is.
        task: The data.
        training: Settings with `keep="last"`: the best epoch is one of all members together.
        executor: Where the members are trained, as for `compare`.
        out: A folder for the files of SLURM jobs.
        hardware: Device and precision of each job; by default a GPU or the CPU.
        calibrate: Calibrate the joined ensemble on the validation data, if there is enough of it.

    Raises:
        SettingError: members are not trained independently, or the weights that are kept are not the last.
        PluribusError: the job of a member failed twice.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from pluribus.data import two_moons
        >>> ensemble = pluribus.convert(torch.nn.Linear(2, 2), DeepEnsembles(members=3))
        >>> with ThreadPoolExecutor(1) as pool:
        ...     joined = train_members(
        ...         ensemble, two_moons(train=40), Training(epochs=1, keep="last"), executor=pool
        ...     )
        >>> joined(torch.zeros(5, 2)).shape
        torch.Size([3, 5, 2])
    """
    check_task(task)
    _check_apart(ensemble, training)
    models = [ensemble.member(number) for number in range(ensemble.members.count)]
    device = (hardware or Hardware()).for_worker()
    jobs = []
    for number, model in enumerate(models):
        jobs.append(MemberJob(number, copy.deepcopy(model), ensemble.likelihood, task, training, device))
    with (
        opened(executor, Path(out)) as made,
        Submission(train_member, jobs, made, lambda job, reason: None) as submission,
    ):
        for job, state in submission.results():
            if isinstance(state, Lost):
                raise PluribusError(
                    f"every member must be trained, got a worker that {state.reason}, twice, for member "
                    f"{job.number}. Run it again."
                )
            models[job.number].load_state_dict(state)
    example = task.train.example_for(models[0])
    joined = from_models(models, ensemble.likelihood, example=example).eval()
    if calibrate and len(task.validation) >= LEAST_SAMPLES:
        joined.calibrate(task)
    return joined


def train_member(job: MemberJob) -> Mapping[str, Tensor]:
    """Train one member in this process, and return its state dict on the CPU."""
    example = job.task.train.example_for(job.network)
    alone = convert(job.network, Single(), job.likelihood, example=example)
    with ONE_RUN:
        train(alone, job.task, job.training, fabric=job.hardware.fabric(), show=False, calibrate=False)
    trained = alone.member(0).state_dict()
    return {name: tensor.detach().cpu() for name, tensor in trained.items()}


def _check_apart(ensemble: Ensemble, training: Training) -> None:
    """Raise `SettingError` unless separate trainings are the training of the ensemble."""
    method = ensemble.method
    separate = isinstance(method, DeepEnsembles) and method.is_separate(ensemble.members)
    if not separate or isinstance(ensemble.members, WithPrior):
        raise SettingError(
            "members that are trained as separate jobs must share nothing, as those of DeepEnsembles without "
            f"prior networks, got {method}. Use train(...)."
        )
    if method.data_orders > 1:
        raise SettingError(
            "members that are trained as separate jobs must go through the data in one order, got "
            "an order for each. Use shuffle_members=False and start='fresh'."
        )
    if training.keep != "last" or training.patience is not None:
        raise SettingError(
            "members that are trained as separate jobs must keep their last weights, got "
            f"keep={training.keep!r} and patience={training.patience}: the best epoch is one of all members "
            "together. Use keep='last' and patience=None."
        )
