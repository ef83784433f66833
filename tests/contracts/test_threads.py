"""Threads: calls of one ensemble from several threads give what calls one after the other give."""

import copy
import pickle
import sys
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import (
    ECMP,
    EMP,
    MIMMO,
    MIMO,
    SAE,
    SWAG,
    VNN,
    BatchEnsemble,
    BayesByBackprop,
    DeepEnsembles,
    DeepSubEnsembles,
    DropConnect,
    EarlyExit,
    Hypermodel,
    Laplace,
    LayerEnsembles,
    LoRAEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
    Single,
)
from tests.perturb import perturbed
from tests.verify import change_code

METHODS = [
    Single(),
    DeepEnsembles(members=3),
    DeepEnsembles(members=9, prior_scale=0.5),
    BatchEnsemble(members=3),
    MCDropout(rate=0.2, draws=3),
    PackedEnsembles(members=2, alpha=2),
    Masksembles(members=3),
    LayerEnsembles(options=2, draws=4),
    DeepSubEnsembles(members=2),
    EMP(options=2, draws=4),
    ECMP(options=2, draws=3),
    DropConnect(rate=0.2, draws=3),
    EarlyExit(),
    SAE(inputs=2, exits=2),
    MIMO(inputs=2),
    MIMMO(inputs=2),
    SWAG(members=3),
    Laplace(draws=3),
    BayesByBackprop(draws=3),
    VNN(draws=3),
    Hypermodel(draws=3),
    LoRAEnsembles(members=3),
]
each_method = pytest.mark.parametrize("method", METHODS, ids=str)
KINDS = (DeepEnsembles, MCDropout, Masksembles, LayerEnsembles, ECMP, EarlyExit)
"""One method of each way of running; the others in the slow run."""
each_kind = pytest.mark.parametrize(
    "method",
    [pytest.param(one, marks=[pytest.mark.slow] * (not isinstance(one, KINDS))) for one in METHODS],
    ids=str,
)
inputs = [torch.randn(4, 6, generator=torch.Generator().manual_seed(seed)) for seed in range(5)]
targets = torch.tensor([0, 1, 2, 0])


@pytest.fixture(autouse=True)
def _short_switches():
    """Threads take turns every few operators, so that what can go wrong does."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def network() -> nn.Module:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), block(), block(), nn.Dropout(0.1), nn.Linear(8, 3))


def made(method: pl.Method, model: nn.Module | None = None) -> pl.Ensemble:
    ensemble = perturbed(pl.convert(model or network(), method, example=inputs[0]))
    # SWAG has no members before its first snapshot, Laplace none before it saw data; others do nothing here.
    ensemble.after_step(1.0)
    ensemble.finish([inputs[0]])
    return ensemble


def run_in_threads(jobs: list[Callable[[], None]]) -> None:
    """Run all jobs at once; the first error of any is raised here."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def guarded(job: Callable[[], None]) -> None:
        try:
            start.wait()
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def calls(call: Callable[[Tensor], Tensor], expected: list[Tensor], count: int, first: int) -> None:
    """Call again and again on changing inputs; every output must be the expected one, bit for bit."""
    for step in range(count):
        place = (first + step) % len(inputs)
        assert torch.equal(call(inputs[place]), expected[place]), f"call {step} differs"


def verify_calls(
    call: Callable[[Tensor], Tensor], fresh: Callable[[Tensor], Tensor], threads: int, count: int
):
    """Compare calls from threads with the sequential ones of an equal module that has run already."""
    with torch.no_grad():
        expected = [fresh(x) for x in inputs]

    def job(first: int) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                calls(call, expected, count, first)

        return run

    run_in_threads([job(first) for first in range(threads)])


def verify_method(method: pl.Method, threads: int, count: int) -> None:
    ensemble = made(method).eval()
    state = copy.deepcopy(ensemble.state_dict())
    # The first calls of all threads come at once: what is read of the network is read under way.
    verify_calls(ensemble, copy.deepcopy(ensemble), threads, count)
    frozen = ensemble.freeze()
    verify_calls(frozen, copy.deepcopy(frozen), threads, count)
    assert_close(ensemble.state_dict(), state, rtol=0, atol=0)


@each_method
def test_eval_calls_agree_with_sequential_ones(method):
    verify_method(method, threads=4, count=25)


@pytest.mark.slow
@each_method
def test_many_eval_calls_agree_with_sequential_ones(method):
    verify_method(method, threads=8, count=200)


def keep_statistics(layer: nn.Module) -> None:
    if isinstance(layer, nn.BatchNorm1d):
        layer.momentum = 0.0


@each_kind
def test_predict_is_not_disturbed_by_training_threads(method):
    ensemble = made(method)
    # Training changes running statistics, and with them what predict returns: here they stay as they are.
    change_code(ensemble, keep_statistics)
    ensemble.train()
    ensemble.loss(inputs[0], targets)  # sets the temperature of SAE, which weighs what predict averages
    expected = [ensemble.predict(x).probabilities for x in inputs]
    state = {name: t.clone() for name, t in ensemble.state_dict().items()}

    def train() -> None:
        for _ in range(8):
            ensemble.loss(inputs[0], targets).backward()

    def predict() -> None:
        calls(lambda x: ensemble.predict(x).probabilities, expected, 15, 0)

    run_in_threads([train, predict, train, predict])
    assert ensemble.training
    for name, tensor in state.items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(ensemble.state_dict()[name], tensor), name


@each_kind
@pytest.mark.sampled(2)
def test_training_steps_of_one_ensemble_do_not_disturb_calls_of_its_copy(method):
    ensemble = made(method).eval()
    other = copy.deepcopy(ensemble).train()
    with torch.no_grad():
        expected = [ensemble(x) for x in inputs]

    def train() -> None:
        optimizer = torch.optim.SGD(other.parameters(), lr=0.01)
        for _ in range(8):
            loss = other.loss(inputs[0], targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def call() -> None:
        with torch.no_grad():
            calls(ensemble, expected, 15, 0)

    run_in_threads([train, call, call])


@each_kind
@pytest.mark.sampled(2)
def test_copies_and_pickles_in_the_middle_agree(method):
    ensemble = made(method).eval()
    with torch.no_grad():
        expected = [ensemble(x) for x in inputs]

    def call() -> None:
        with torch.no_grad():
            calls(ensemble, expected, 20, 0)

    def copies() -> None:
        for one in (copy.deepcopy(ensemble), pickle.loads(pickle.dumps(ensemble)), ensemble.freeze()):
            with torch.no_grad():
                assert_close(one(inputs[1]), expected[1])

    run_in_threads([call, copies, call])


def test_training_passes_are_serialised():
    ensemble = made(DeepEnsembles(members=2)).train()
    expected = copy.deepcopy(ensemble)
    for _ in range(4 * 25):
        expected(inputs[0])

    def train() -> None:
        for _ in range(25):
            ensemble(inputs[0])

    run_in_threads([train] * 4)
    # Every pass counted, none of them lost between reading and writing the running statistics.
    assert_close(ensemble.state_dict(), expected.state_dict(), rtol=0, atol=0)


class Counting(nn.Module):
    """Writes into a buffer in eval mode too."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        out = self.layer(x) + self.calls
        self.last = out.detach().mean(0)
        return out


@pytest.mark.parametrize("frozen", [False, True], ids=["live", "frozen"])
def test_buffers_that_code_writes_in_eval_mode_stay(frozen):
    ensemble = pl.convert(Counting(), DeepEnsembles(members=3), example=inputs[0]).eval()
    state = copy.deepcopy(ensemble.state_dict())
    called = ensemble.freeze() if frozen else ensemble
    verify_calls(called, copy.deepcopy(called), threads=4, count=10)
    assert_close(ensemble.state_dict(), state, rtol=0, atol=0)
    with torch.inference_mode():
        assert_close(called(inputs[0]), called(inputs[0]), rtol=0, atol=0)
    assert_close(ensemble.state_dict(), state, rtol=0, atol=0)


def test_reading_a_data_flow_does_not_touch_the_random_numbers_of_other_threads():
    ensemble, drawn, done = made(LayerEnsembles(options=2, draws=4)).eval(), [], threading.Event()

    def draw() -> None:
        while not done.is_set():
            drawn.append(torch.rand(()).item())

    def read() -> None:
        try:
            ensemble(inputs[0])
            ensemble.freeze()(inputs[0])
        finally:
            done.set()

    run_in_threads([draw, read])
    # float32 has 2^24 numbers in [0, 1), so that a few of many draws are equal by chance.
    expected_pairs = len(drawn) ** 2 / 2**25
    assert len(drawn) - len(set(drawn)) <= 3 * expected_pairs + 10
