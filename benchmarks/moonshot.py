"""Is a cheap ensemble as good as four networks? Runs for five real tasks, as a queue that continues.

    PLURIBUS_DATA=... python benchmarks/moonshot.py                     # work until the queue is empty
    PLURIBUS_DATA=... python benchmarks/moonshot.py --seeds 3 --tasks kin8nm fashion14
    python benchmarks/moonshot.py --list                                # what is done and what is next
    python benchmarks/moonshot_table.py                                 # the comparison

Settings are chosen on validation data, by one rule and with the same number of trials for all methods, before
any test result of the method is computed (`moonshot_tuning.jsonl`):

1. the two learning rates of the task at S steps;
2. the better of them at 3 S steps;
3. at 6 S, 12 S and 24 S steps, as long as the last step of this ladder improved the validation NLL by more
   than 0.01, half of the margin of the comparison. So no method, and in particular no deep ensemble, is
   compared before longer training stopped to help.

The trial with the lowest validation NLL is used for all seeds. Adam, a cosine schedule, weights of the best
validation NLL kept, no weight decay. Trials have seed 1000, which no run of the comparison has.

One JSON line per finished run goes to `results/moonshot.jsonl`; finished runs are skipped. Several processes
may work at once: a lock file is held for each run, and the operating system releases it when a process is
killed. Predictions for every sample are kept in `--outcomes`, outside of version control, so that
calibration, other scores and the bootstrap need no new training.
"""

import argparse
import fcntl
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from moonshot_tasks import STUDIES, Configuration, Study, proxies
from torch import Tensor

import pluribus as pl
from pluribus.data.task import Task
from pluribus.mechanisms.graph.cost import cost
from pluribus.metrics import METRICS
from pluribus.metrics.ood import auroc, ood_scores
from pluribus.prediction import DiscretePrediction, Prediction
from pluribus.training import Training, train
from pluribus.training.work import train_multiply_adds

FOLDER = Path(__file__).parent
RUNS, TRIALS = "moonshot.jsonl", "moonshot_tuning.jsonl"
TRIAL_SEED = 1000
LENGTHS = (3, 6, 12, 24)
"""Multiples of the short training that are tried one after the other."""
IMPROVES = 0.01
"""Nats by which a longer training must lower the validation NLL for the next longer one to be tried."""
LARGEST = 8_000_000
"""Bytes of the members' outputs on one set of samples up to which they are kept."""
TIERS = (("single", "deep4", "packed4"), ("sae22",), ("masks4", "mimo2"), ("batch4", "layer", "emp"))
"""Configurations in the order in which they are run."""
LATE_TASKS = ("cifar16",)
"""Tasks that take longest, run after the first seeds of all others."""
LEVELS = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
"""Levels of the central intervals whose coverage is compared with the level."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A training: a trial, whose seed is `TRIAL_SEED`, or a run of the comparison."""

    task: str
    configuration: str
    seed: int
    rate: float
    steps: int

    @property
    def is_trial(self) -> bool:
        """Return whether test data must not be read."""
        return self.seed == TRIAL_SEED

    @property
    def key(self) -> str:
        """Return the name of the job, which a file can have."""
        return f"{self.task}-{self.configuration}-{self.seed}-{self.rate:g}-{self.steps}"


@dataclass(frozen=True)
class Store:
    """Files of results: lines that only grow, outcomes, and locks.

    Args:
        results: Folder of the JSON lines.
        outcomes: Folder of the predictions and locks.
    """

    results: Path
    outcomes: Path

    def lines(self, name: str) -> list[Line]:
        """Return the lines of a file; one that a killed process left unfinished is passed over."""
        path = self.results / name
        found = []
        for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                found.append(json.loads(text))
            except json.JSONDecodeError:
                continue
        return found

    def add(self, name: str, line: Line) -> None:
        """Append a line in one write, while no other process writes."""
        with (self.results / name).open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            size = file.seek(0, os.SEEK_END)
            broken = False
            if size:
                file.seek(size - 1)
                broken = file.read(1) != b"\n"
            # An unfinished line of a killed process ends here and does not swallow this one.
            file.write(b"\n" * broken + json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def claimed(self, job: Job) -> Iterator[bool]:
        """Hold the lock of a job; yield False if another process holds it."""
        folder = self.outcomes / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{job.key}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def keep(self, job: Job, arrays: dict[str, np.ndarray[Any, Any]]) -> None:
        """Write the predictions of a run; a file is there whole or not at all."""
        unfinished = self.outcomes / f"{job.key}.{os.getpid()}.part"
        with unfinished.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        unfinished.replace(self.outcomes / f"{job.key}.npz")


def next_trial(study: Study, task: str, configuration: str, done: dict[str, Line]) -> Job | None:
    """Return the trial that the rule demands next, or None if settings are chosen."""

    def trial(rate: float, length: int) -> Job:
        return Job(task, configuration, TRIAL_SEED, rate, length * study.steps)

    def nll(job: Job) -> float:
        return float(done[job.key]["validation_nll"])

    short = [trial(rate, 1) for rate in study.rates]
    for job in short:
        if job.key not in done:
            return job
    before = min(short, key=nll)
    for length in LENGTHS:
        longer = trial(before.rate, length)
        if longer.key not in done:
            return longer
        if nll(before) - nll(longer) <= IMPROVES:
            return None
        before = longer
    return None


def chosen(task: str, configuration: str, done: dict[str, Line]) -> tuple[float, int]:
    """Return learning rate and steps of the best trial."""
    own = [line for line in done.values() if (line["task"], line["configuration"]) == (task, configuration)]
    best = min(own, key=lambda line: float(line["validation_nll"]))
    return best["rate"], best["steps"]


def queue(tasks: list[str], wanted: list[str], seeds: int) -> Iterator[tuple[str, str, int]]:
    """Yield task, configuration and seed, the most informative first."""
    early = [task for task in tasks if task not in LATE_TASKS]
    late = [task for task in tasks if task in LATE_TASKS]
    first, second, *others = TIERS
    rounds = [(early, first, [0]), (early, second, [0]), (early, first + second, range(1, 3))]
    rounds += [(early, others[0], range(3)), (late, first + second, [0])]
    rounds += [(early, first + second, range(3, 5)), (early, others[1], range(3))]
    rounds += [(late, first + second, range(1, 5)), (tasks, sum(TIERS, ()), range(5))]
    for names, configurations, numbers in rounds:
        for seed in numbers:
            for task in names:
                for configuration in configurations:
                    if seed < seeds and configuration in wanted:
                        yield task, configuration, seed


def next_jobs(store: Store, tasks: list[str], wanted: list[str], seeds: int) -> Iterator[Job]:
    """Yield what can be run now, in the order of the queue; a run waits for the trials of its method."""
    trials = {line["key"]: line for line in store.lines(TRIALS)}
    runs = {line["key"] for line in store.lines(RUNS)}
    seen = set()
    for task, configuration, seed in queue(tasks, wanted, seeds):
        trial = next_trial(STUDIES[task], task, configuration, trials)
        job = trial or Job(task, configuration, seed, *chosen(task, configuration, trials))
        if job.key not in runs and job.key not in seen:
            seen.add(job.key)
            yield job


def train_once(job: Job, study: Study, task: Task, unfinished: Path) -> tuple[pl.Ensemble, Line]:
    """Train, and return the ensemble and what is known without test data.

    Args:
        job: What to train.
        study: Network and methods.
        task: The data.
        unfinished: Folder of the checkpoint, with which an interrupted training goes on.
    """
    configuration: Configuration = study.configurations[job.configuration]
    torch.manual_seed(job.seed)
    ensemble = pl.convert(
        study.network(),
        configuration.method,
        task.likelihood,
        example=task.train.x[:2],
        include=configuration.include,
        seed=job.seed,
    )
    training = Training(steps=job.steps, lr=job.rate, batch=study.batch, seed=job.seed)
    start = time.process_time()
    history = train(ensemble, task, training, out=unfinished, show=False)
    seconds = time.process_time() - start
    # Long trainings are not validated after every epoch; the other rows hold NaN.
    checked = [row for row in history if not math.isnan(row["validation_nll"])]
    best = min(checked, key=lambda row: row["validation_nll"])
    last = history[-1]
    return ensemble, {
        "key": job.key,
        "task": job.task,
        "configuration": job.configuration,
        "seed": job.seed,
        "rate": job.rate,
        "steps": job.steps,
        "batch": study.batch,
        "method": configuration.method.to_dict(),
        "include": configuration.include,
        "validation_nll": best["validation_nll"],
        "best_epoch": best["epoch"],
        "epochs": last["epoch"],
        "train_multiply_adds": train_multiply_adds(ensemble, task, training, last["step"]),
        "train_cpu_seconds": round(seconds, 1),
        "version": pl.__version__,
    }


def outcomes(prediction: Prediction, target: Tensor | None) -> dict[str, Tensor]:
    """Return what later analysis needs of each sample, by name."""
    kept = {f"score_{name}": scores.float() for name, scores in ood_scores(prediction).items()}
    members = prediction.members
    if members.numel() * 2 <= LARGEST:
        kept["members"] = members.half()
    if isinstance(prediction, DiscretePrediction):
        kept["probabilities"] = prediction.probabilities.half()
        kept["confidence"] = prediction.confidence.float()
        if target is not None:
            logs = prediction.log_probabilities
            kept["nll"] = -logs.gather(1, target[:, None])[:, 0].float()
            kept["correct"] = prediction.labels == target
        return kept
    kept["mean"], kept["variance"] = prediction.mean[:, 0].float(), prediction.variance[:, 0].float()
    if target is not None:
        kept["nll"] = -prediction.log_prob(target)[:, 0].float()
        kept["below"] = prediction.cdf(target)[:, 0].float()
        kept["error"] = (prediction.mean - target)[:, 0].float()
    return kept


def interval_calibration_error(below: Tensor) -> float:
    """Compute the mean distance of the coverage of central intervals from their level, over 19 levels.

    Args:
        below: Probability that the prediction gives to values up to the target, `[samples]`.
    """
    depth = (2 * below.double() - 1).abs()
    coverage = (depth[:, None] <= LEVELS).double().mean(0)
    return float((coverage - LEVELS).abs().mean())


def measure(ensemble: pl.Ensemble, study: Study, task: Task) -> tuple[Line, dict[str, dict[str, Tensor]]]:
    """Return the scores on test data, and the outcomes of all sets."""
    sets: dict[str, tuple[Tensor, Tensor | None]] = {
        "validation": (task.validation.x, task.validation.y),
        "test": (task.test.x, task.test.y),
        "proxies": (proxies(task), None),
    }
    for name, strangers in task.ood.items():
        sets[f"ood_{name}"] = (strangers, None)
    kept, predictions = {}, {}
    for name, (x, y) in sets.items():
        predictions[name] = ensemble.predict(x, chunk=500)
        kept[name] = outcomes(predictions[name], y)
    test = kept["test"]
    scores: Line = {"nll": float(test["nll"].double().mean())}
    if "correct" in test:
        scores["accuracy"] = float(test["correct"].double().mean())
        scores["ece"] = METRICS["ece"](predictions["test"], task.test.y)
    else:
        scores["rmse"] = METRICS["rmse"](predictions["test"], task.test.y)
        scores["ece"] = interval_calibration_error(test["below"])
    for name in task.ood:
        for score in [key for key in test if key.startswith("score_")]:
            value = auroc(test[score], kept[f"ood_{name}"][score])
            scores[f"auroc_{name}_{score.removeprefix('score_')}"] = value
    scores["members"] = len(ensemble.weights)
    one = cost(study.network().eval(), task.test.x[:1]).multiply_adds
    scores["multiply_adds"] = cost(ensemble.freeze(), task.test.x[:1]).multiply_adds
    scores["multiply_adds_ratio"] = scores["multiply_adds"] / one
    return scores, kept


def run(job: Job, store: Store, task: Task) -> Line:
    """Train, measure and keep one job, and return its line."""
    study = STUDIES[job.task]
    unfinished = store.outcomes / "unfinished" / job.key
    ensemble, line = train_once(job, study, task, unfinished)
    if job.is_trial:
        store.add(TRIALS, line)
        shutil.rmtree(unfinished)
        return line
    scores, kept = measure(ensemble, study, task)
    flat = {}
    for part, values in kept.items():
        for name, tensor in values.items():
            flat[f"{part}/{name}"] = tensor.detach().numpy()
    store.keep(job, flat | {"weights": ensemble.weights.detach().numpy()})
    store.add(RUNS, line | scores)
    shutil.rmtree(unfinished)
    return line | scores


def work(store: Store, tasks: list[str], wanted: list[str], seeds: int, most: int) -> None:
    """Run up to so many jobs, as long as there is one that no other process runs."""
    loaded: dict[str, Task] = {}
    for _ in range(most):
        for job in next_jobs(store, tasks, wanted, seeds):
            with store.claimed(job) as mine:
                # Another process may have finished it since the list was read.
                name = TRIALS if job.is_trial else RUNS
                if not mine or job.key in {line["key"] for line in store.lines(name)}:
                    continue
                if job.task not in loaded:
                    loaded[job.task] = STUDIES[job.task].load()
                line = run(job, store, loaded[job.task])
                shown = {key: line[key] for key in ("validation_nll", "nll", "ece") if key in line}
                print(time.strftime("%H:%M:%S"), job.key, shown, line["train_cpu_seconds"], "s", flush=True)
                break
        else:
            return


def main() -> None:
    """Work on the queue, or show it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", nargs="+", choices=STUDIES, default=list(STUDIES))
    names = [name for tier in TIERS for name in tier]
    parser.add_argument("--configurations", nargs="+", choices=names, default=names)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--results", type=Path, default=FOLDER / "results")
    parser.add_argument("--outcomes", type=Path, default=FOLDER / "outcomes")
    parser.add_argument("--jobs", type=int, default=sys.maxsize)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    store = Store(options.results, options.outcomes)
    if not options.list:
        work(store, options.tasks, options.configurations, options.seeds, options.jobs)
        return
    print(f"{len(store.lines(TRIALS))} trials and {len(store.lines(RUNS))} runs are done; next:")
    for job in islice(next_jobs(store, options.tasks, options.configurations, options.seeds), 12):
        print(" ", job.key)


if __name__ == "__main__":
    main()
