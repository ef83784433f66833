"""The planner: when rows run by a plan, and that whatever happens to an ensemble they stay right."""

import copy
import pickle
import random

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.members.caller import Caller
from pluribus.mechanisms.members.prior import WithPrior
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running import planner
from pluribus.mechanisms.running.plan import ExecutionPlan
from pluribus.mechanisms.running.planner import ROOM, planner_of
from pluribus.methods import ECMP, EMP, BatchEnsemble, DeepEnsembles, MCDropout
from tests import zoo
from tests.cases import case_named, normal, run
from tests.mechanisms.running.options import alone, chain, mixed, options
from tests.verify import caller_of

EXACT = {"rtol": 1e-10, "atol": 1e-10}
call = Caller.call_module
x = normal(6)()


@pytest.fixture
def plans(monkeypatch):
    """The plans that ran."""
    ran, run_plan = [], ExecutionPlan.run
    monkeypatch.setattr(ExecutionPlan, "run", lambda plan, *args: ran.append(plan) or run_plan(plan, *args))
    return ran


def by_plan(plans, run):
    """Return the function's result, and if rows ran by a plan; reading proves itself with a row alone."""
    plans.clear()
    outputs = run()
    return outputs, any(len(plan.order) > 1 for plan in plans)


def test_tensors_are_those_of_the_moment(plans):
    model = chain(6, 5, 3)
    ensemble = mixed(model, x, [3])
    ensemble(x)
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter.mul_(1.5)
    outputs, planned = by_plan(plans, lambda: ensemble(x))
    assert planned
    assert_close(outputs, alone(ensemble, model, ensemble.members.index.rows(training=False), x), **EXACT)
    other = mixed(chain(6, 5, 3), x, [3])
    other.load_state_dict(ensemble.state_dict())
    assert_close(other(x), outputs, rtol=0, atol=0)


class Chilled(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        with torch.no_grad():
            x = self.first(x)
        return self.last(x)


def test_regions_without_gradients_have_none_by_a_plan(plans):
    ensemble = mixed(Chilled().double(), x, [3])
    outputs, planned = by_plan(plans, lambda: ensemble(x))
    assert planned
    outputs.sum().backward()
    had = {name: parameter.grad is not None for name, parameter in ensemble.named_parameters()}
    assert had == {name: ".last." in name for name in had}


def test_copies_of_a_used_ensemble_predict_the_same():
    ensemble = mixed(chain(6, 5, 3), x, [3])
    expected = ensemble(x)
    assert_close(copy.deepcopy(ensemble)(x), expected, rtol=0, atol=0)
    assert_close(pickle.loads(pickle.dumps(ensemble))(x), expected, rtol=0, atol=0)
    assert_close(ensemble.float()(x.float()), expected.float())
    with torch.inference_mode():
        assert_close(ensemble.double()(x), expected, rtol=1e-5, atol=1e-5)


def test_rows_may_be_planned_in_inference_mode(plans):
    model = zoo.batch_norm_mlp().double().eval()
    ensemble = mixed(model, x, [2, 1, 3])
    with torch.inference_mode():
        outputs, planned = by_plan(plans, lambda: ensemble(x.clone()))
        explained = ensemble.explain(x)
    assert planned
    assert_close(outputs, alone(ensemble, model, ensemble.members.index.rows(training=False), x), **EXACT)
    assert explained == ensemble.explain(x)
    ensemble(x).sum().backward()  # and what was planned serves outside of it


def test_other_sizes_are_read_anew_and_other_batches_are_not(plans):
    model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), *zoo.pooled(3, nn.AdaptiveAvgPool2d(1))).double()
    ensemble = mixed(model, normal(2, 8, 8)(), [2])
    rows = ensemble.members.index.rows(training=False)
    for size in (5, 6, 7, 8, 9):
        image = torch.randn(3, 2, size, size, dtype=torch.float64)
        outputs, planned = by_plan(plans, lambda image=image: ensemble(image))
        assert planned == (size < 9)
        assert_close(outputs, alone(ensemble, model, rows, image), **EXACT)
    assert "more than 4 kinds" in planner_of(ensemble.members)(tuple(rows), Inputs.of(image))
    assert by_plan(plans, lambda: ensemble(torch.zeros(1, 2, 8, 8, dtype=torch.float64)))[1]
    assert len(planner_of(ensemble.members)._readings) == 4


def test_inputs_that_are_refused_are_not_read_and_do_not_count(plans):
    ensemble = mixed(chain(6, 5, 3), x, [2, 3])
    for width in (7, 8, 9, 10, 11):
        for verb in (ensemble, ensemble.explain, ensemble.predict):
            with pytest.raises(pl.InputError, match=r"layer 0 \(Linear\) failed, on .*check shapes"):
                verb(torch.zeros(4, width, dtype=torch.float64))
    assert planner_of(ensemble.members)._readings == {}
    assert by_plan(plans, lambda: ensemble(x))[1]


class Noisy(zoo.ThreeLayers):
    """Draws a number in eval mode."""

    def forward(self, x):
        return self.head(self.middle(self.first(x))) + torch.rand(())


def test_trying_inputs_draws_no_numbers_of_the_user():
    ensemble, outputs = mixed(Noisy().double(), x, [2]), []
    for _ in range(2):  # the first time it is tried and read
        torch.manual_seed(0)
        outputs.append(ensemble(x))
    assert_close(*outputs, rtol=0, atol=0)


def test_kinds_that_are_not_read_are_not_tried(monkeypatch):
    monkeypatch.setattr(planner, "KINDS", 0)
    ensemble, calls = mixed(chain(6, 5, 3), x, [2, 3]), []
    monkeypatch.setattr(Caller, "call_module", lambda *given: calls.append(1) or call(*given))
    assert len(ensemble(x)) == len(calls) == 6


def test_tensors_that_are_drawn_for_rows_count_in_memory():
    """Rows of options are views, and take none; drawn ones are there for all rows of a block at once."""
    model = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.Linear(4, 20_000))
    ensemble, inputs = pl.convert(model, ECMP(2, draws=50)).eval(), x.float()[:1]
    drawn = 4 * (2 * 4 + 5 * 20_000)  # bytes of one row
    found = ensemble.explain(inputs)
    assert found.together * drawn <= ROOM < 50 * drawn
    assert found.peak_bytes.planned > found.together * drawn
    assert (
        drawn <= found.peak_bytes.alone - 2 * 50 * 20_000 * 4 < 2 * drawn
    )  # one row, beside all predictions
    least = 50 * 20_000 * 4 * 2 + 4 * drawn  # predictions, as blocks and joined, and a few rows
    bounded = ensemble.explain(inputs, memory=least)
    assert bounded.together < found.together
    assert bounded.together * drawn < bounded.peak_bytes.planned <= least
    assert_close(ensemble.predict(inputs, memory=least).members, ensemble(inputs))
    options = pl.convert(model, EMP(2, draws=50)).eval()
    assert options.explain(inputs).peak_bytes.planned < drawn * 4


def test_a_batch_that_the_network_counts_is_looped_in_another_size(plans):
    model = zoo.CountedBatch().double()
    ensemble = mixed(model, x, [2])
    rows = ensemble.members.index.rows(training=False)
    for inputs, planned in ((x, True), (x[:4], False)):
        outputs, came = by_plan(plans, lambda inputs=inputs: ensemble(inputs))
        assert came == planned
        assert_close(outputs, alone(ensemble, model, rows, inputs), **EXACT)


def test_a_network_that_cannot_be_read_runs_and_says_why(plans):
    model = zoo.DataDependent().double()
    ensemble = mixed(model, x, [2])
    outputs, planned = by_plan(plans, lambda: ensemble(x))
    assert not planned
    assert_close(outputs, alone(ensemble, model, ensemble.members.index.rows(training=False), x), **EXACT)
    found = ensemble.explain(x)
    assert found.layer_calls is None
    assert "one after the other: the data flow of DataDependent cannot be read" in str(found)
    with pytest.raises(pl.InputError, match="memory can be bounded by a plan alone, however: the data flow"):
        ensemble.predict(x, memory=10**9)


class Counting(zoo.ThreeLayers):
    """Writes into a buffer in eval mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.head(self.middle(self.first(x)))


class Whimsical(zoo.ThreeLayers):
    """Draws a number that the graph takes for a constant."""

    def forward(self, x):
        return self.head(self.middle(self.first(x))) * random.random()


@pytest.mark.parametrize(
    ("model", "reason"),
    [(Counting, "writes into calls in eval mode"), (Whimsical, "computes something else than the code")],
)
def test_code_with_side_effects_is_looped(model, reason, plans):
    ensemble = mixed(model().double(), x, [2])
    assert not by_plan(plans, lambda: ensemble(x))[1]
    assert reason in ensemble.explain(x).reason


def test_priors_run_by_plans_of_their_own(plans):
    ensemble = mixed(chain(6, 5, 3), x, [3])
    prior = options(Network(chain(6, 5, 3), x), [3])
    ensemble.members = WithPrior(ensemble.members, prior, 0.5)
    outputs, _ = by_plan(plans, lambda: ensemble(x))
    assert sum(len(plan.order) > 1 for plan in plans) == 2
    ensemble.members.learnt.lowers = prior.lowers = False
    assert_close(outputs, ensemble(x), **EXACT)
    assert ensemble.explain(x).prior.layer_calls.planned == 3 + 9


def test_layers_in_train_mode_are_looped(plans):
    ensemble = mixed(nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 3)).double(), x, [1, 3])
    assert by_plan(plans, lambda: ensemble(x))[1]
    caller_of(ensemble).modes = (False, False, True, False)
    assert not by_plan(plans, lambda: ensemble(x))[1]


FROZEN = [
    ("dropout_layers", MCDropout(draws=5), {}, 1 + 5 + 5),
    ("functional_dropout", MCDropout(draws=5), {}, 1 + 5 + 5),
    ("mlp", BatchEnsemble(members=3), {"include": "4"}, 1 + 1 + 3),
    ("residual_cnn", DeepEnsembles(members=3), {"include": "7"}, 1 + 1 + 1 + 3),
]


@pytest.mark.parametrize(("name", "method", "settings", "calls"), FROZEN, ids=lambda one: str(one)[:30])
def test_frozen_ensembles_run_once_what_comes_before_members_part(name, method, settings, calls, plans):
    case = case_named(name)
    ensemble = pl.convert(case.model(), method, example=case.inputs(), **settings).eval()
    expected, planned = by_plan(plans, lambda: run(ensemble, case.inputs()))
    assert not planned
    frozen = ensemble.freeze()
    assert_close(run(frozen, case.inputs()), expected, **EXACT)
    assert frozen.explain(case.inputs()).layer_calls.planned == calls
