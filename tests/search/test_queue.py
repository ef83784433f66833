"""The queue: exactly as many trials as wanted, lost ones again, and no trial twice."""

import contextlib

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import text

from pluribus.search.engine import open_queue
from pluribus.search.queue import ERROR, HALVED, RETRIES, SKIPPED, WORKER, QueueEmpty
from pluribus.search.samplers import silence
from pluribus.search.storage import Storage
from tests.search.cases import prepare

# A test takes a trial as a worker does that is killed before its first heartbeat.
pytestmark = pytest.mark.filterwarnings("ignore:Heartbeat of storage")


@pytest.fixture
def queue(tmp_path):
    silence()
    prepare(tmp_path)
    place = Storage(f"sqlite:///{tmp_path}/study.db")
    with contextlib.closing(
        open_queue(place, "a", ["minimize", "minimize"], optuna.samplers.RandomSampler(0), tmp_path)
    ) as opened:
        yield opened


def states(queue):
    return [trial.state.name for trial in queue.trials]


def run(queue, objective):
    queue.optimize(objective, n_trials=1, catch=(ZeroDivisionError,))


def values(trial):
    return trial.suggest_float("x", 0, 1), 1.0


def lose(queue):
    """Take a trial as a worker does that is killed in the middle of it."""
    trial = optuna.Study.ask(queue)
    trial.suggest_float("x", 0, 1)
    return trial


def test_exactly_as_many_trials_as_wanted_are_run(queue):
    queue.fill(3)
    queue.fill(3)
    with queue.working():
        for _ in range(3):
            run(queue, values)
        with pytest.raises(QueueEmpty):
            run(queue, values)
    assert states(queue) == ["COMPLETE"] * 3


def test_first_trials_have_the_given_parameters(queue):
    queue.fill(1, [{"x": 0.25}, {"x": 0.5}])
    queue.fill(3, [{"x": 0.25}, {"x": 0.5}])
    fixed = [trial.system_attrs["fixed_params"] for trial in queue.trials]
    assert fixed == [{"x": 0.25}, {"x": 0.5}, {}]


def test_lost_trial_is_run_again_with_its_parameters(queue):
    queue.fill(1)
    drawn = lose(queue).params
    with queue.working():
        queue.fill(1)
        run(queue, values)
    assert states(queue) == ["FAIL", "COMPLETE"]
    assert queue.trials[1].params == drawn


def test_trial_of_a_living_worker_is_left_alone(queue):
    queue.fill(1)
    with queue.working():
        trial = queue.ask()
        assert trial.user_attrs[WORKER]["lease"] == str(queue.lease)
        queue.fill(1)
        assert states(queue) == ["RUNNING"]
    queue.fill(1)
    assert states(queue) == ["FAIL", "WAITING"]


def test_trial_of_another_machine_is_left_alone(queue):
    queue.fill(1)
    lose(queue).set_user_attr(WORKER, {"host": "elsewhere", "lease": "/nowhere"})
    queue.fill(1)
    assert states(queue) == ["RUNNING"]


def test_trial_of_another_machine_that_is_silent_is_run_again(queue):
    queue.fill(1)
    trial = lose(queue)
    trial.set_user_attr(WORKER, {"host": "elsewhere", "lease": "/nowhere"})
    queue.opened.record_heartbeat(trial._trial_id)
    queue.fill(1)
    assert states(queue) == ["RUNNING"]
    with queue.opened.engine.begin() as connection:
        connection.execute(text("update trial_heartbeats set heartbeat = datetime('now', '-181 seconds')"))
    queue.fill(1)
    assert states(queue) == ["FAIL", "WAITING"]
    assert queue.trials[1].params == trial.params


def test_trial_that_is_lost_again_and_again_is_replaced(queue):
    queue.fill(1)
    for _ in range(RETRIES + 1):
        lose(queue)
        queue.fill(1)
    waiting = queue.get_trials(states=(TrialState.WAITING,))
    assert [trial.params for trial in waiting] == [{}]


def test_failed_and_skipped_trials_are_replaced_and_halved_ones_count(queue):
    queue.fill(3)

    def fail(trial):
        trial.set_user_attr(ERROR, "no")
        raise ZeroDivisionError

    def skip(trial):
        trial.set_user_attr(SKIPPED, "too expensive")
        raise optuna.TrialPruned

    def halve(trial):
        trial.set_user_attr(HALVED, "early")
        raise optuna.TrialPruned

    with queue.working():
        for objective in (fail, skip, halve):
            run(queue, objective)
        queue.fill(3)
    assert states(queue) == ["FAIL", "PRUNED", "PRUNED", "WAITING", "WAITING"]


def test_interrupted_trial_is_queued_again(queue):
    queue.fill(1)

    def interrupt(trial):
        trial.suggest_float("x", 0, 1)
        raise KeyboardInterrupt

    with queue.working(), pytest.raises(KeyboardInterrupt):
        run(queue, interrupt)
    queue.fill(1)
    assert states(queue) == ["FAIL", "WAITING"]
    assert queue.trials[1].params == queue.trials[0].params


def test_queue_belongs_to_one_process(queue):
    with pytest.raises(TypeError, match="one process"):
        queue.__reduce__()
