"""Explanations: numbers as measured, layers by name, and a table to print."""

import pytest
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import mlp
from pluribus.mechanisms.running.explain import Fork, Saving
from pluribus.methods import (
    BatchEnsemble,
    DeepEnsembles,
    DeepSubEnsembles,
    Hypermodel,
    LoRAEnsembles,
    Masksembles,
    MCDropout,
)
from tests import zoo
from tests.cases import case_named, normal
from tests.mechanisms.running.options import chain, mixed
from tests.small_methods import SMALL

x = normal(6)()


def test_numbers_are_those_of_a_run():
    ensemble = mixed(chain(6, 7, 5, 3), x, [3, 1, 2])
    found = ensemble.explain(x)
    measured = pl.cost(ensemble, x)
    assert found.multiply_adds == Saving(measured.multiply_adds, 6 * 10 * (6 * 7 + 7 * 5 + 5 * 3))
    assert found.multiply_adds.planned == 10 * (3 * 6 * 7 + 3 * 7 * 5 + 6 * 5 * 3)
    written = [10 * 8 * (3 * 2 * 7 + 3 * 2 * 5 + 6 * 3), 6 * 10 * 8 * (2 * 7 + 2 * 5 + 3)]  # with activations
    assert found.written_bytes == Saving(*written)
    assert found.peak_bytes.planned == measured.peak_activation_bytes
    assert found.layer_calls == Saving(3 + 3 + 6, 6 * 3)
    assert found.forks == (Fork("0", 3, 1), Fork("4", 6, 3))
    assert found.reason == ""
    assert ensemble.explain(x, members=[1, 1]).multiply_adds.ratio == 2  # rows may be asked for twice


def test_the_table_is_aligned():
    lines = str(mixed(chain(6, 7, 3), x, [1, 4]).explain(x)).splitlines()
    assert lines[0] == "4 rows, 4 at a time"
    assert len({len(line) for line in lines[1:6]}) == 1
    assert lines[2].split() == ["layer", "calls", "5", "8", "1.60"]
    assert lines[6:8] == ["once for all: 0 (67% of a row's multiply-adds)", "rows part at: 2 (1 → 4)"]


def test_engines_are_listed_up_to_the_one_that_runs():
    explained = mixed(chain(6, 7, 3), x, [1, 4]).explain(x)
    assert [name for name, _ in explained.engines] == ["OnePass", "MixedBatch", "Batched", "Lowered"]
    assert [bool(reason) for _, reason in explained.engines] == [True, True, True, False]
    lines = str(explained).splitlines()
    assert lines[-2:] == ["Batched: fewer than 8 rows", "Lowered: runs"]


@pytest.mark.parametrize("mode", [True, False])
def test_rows_are_those_of_eval_mode_and_the_mode_stays(mode):
    ensemble = pl.convert(zoo.FunctionalDropout().double(), MCDropout(draws=7), example=x).train(mode)
    assert ensemble.explain(x).rows == 7
    assert ensemble.explain(x, draws=3).rows == 3
    # A live ensemble of this method loops, and runs a row twice that is asked for twice.
    assert ensemble.explain(x, members=[1, 1]).layer_calls.planned == 6
    assert ensemble.training == mode


def test_nothing_in_common_is_said():
    found = pl.convert(zoo.residual_cnn().double(), DeepEnsembles(members=2)).explain(normal(2, 8, 8)())
    assert "they have nothing in common" in str(found)
    assert found.multiply_adds.ratio == found.peak_bytes.ratio == 1


def test_what_freezing_would_bring_is_said():
    ensemble = pl.convert(zoo.mlp().double(), BatchEnsemble(members=3), include="4")
    assert "run by their data flow when frozen" in str(ensemble.explain(x))
    assert ensemble.freeze().explain(x).reason == ""


def test_long_lists_are_cut():
    model = nn.Sequential(*[nn.Linear(6, 6) for _ in range(12)], nn.Linear(6, 3)).double()
    found = mixed(model, x, [*[1] * 12, 2]).explain(x)
    assert "once for all: 0, 1, 2, 3, 4, 5, 6, 7 and 4 more" in str(found)
    assert_close(found.layer_calls.ratio, 26 / 14)


@pytest.mark.parametrize("frozen", [False, True])
def test_cost_counts_what_is_planned_and_not_the_planning(frozen):
    case = case_named("residual_cnn")
    ensemble = pl.convert(case.model(), DeepSubEnsembles(members=3), example=case.inputs()).eval()
    expected = ensemble.explain(case.inputs())
    cost = pl.cost(ensemble.freeze() if frozen else ensemble, case.inputs())
    assert (cost.multiply_adds, cost.uncounted) == (expected.multiply_adds.planned, ())
    assert frozen or cost.peak_activation_bytes == expected.peak_bytes.planned


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.sampled(2)
def test_numbers_of_a_frozen_ensemble_are_those_of_a_run(name):
    case = case_named("residual_cnn")
    ensemble = pl.convert(case.model(), SMALL[name], example=case.inputs())
    ensemble.after_step(1.0)  # SWAG has no members before
    frozen = ensemble.eval().freeze()
    found, measured = frozen.explain(case.inputs()), pl.cost(frozen, case.inputs())
    assert found.multiply_adds.planned == measured.multiply_adds
    assert found.peak_bytes.planned == measured.peak_activation_bytes
    # Prior networks and members of their own widths are compared with themselves.
    assert found.multiply_adds.ratio >= 1


@pytest.mark.parametrize(
    "method", [DeepEnsembles(members=9), DeepSubEnsembles(members=9), BatchEnsemble(members=9)], ids=str
)
def test_rows_that_run_at_once_without_a_plan_are_said_to_do_so(method):
    ensemble = pl.convert(zoo.mlp().double(), method, example=x).eval()
    found, measured = ensemble.explain(x), pl.cost(ensemble, x)
    assert found.engines[-1] == ("Batched", "")
    assert str(found).startswith("9 rows, 9 at a time")
    assert found.multiply_adds == Saving(measured.multiply_adds, measured.multiply_adds)
    assert found.peak_bytes.planned == measured.peak_activation_bytes


def test_masks_that_are_multiplied_save_nothing_before_freezing():
    network = mlp(6, 3, hidden=(20, 30)).double()
    ensemble = pl.convert(network, Masksembles(members=3), example=x).eval()
    found = ensemble.explain(x)
    assert found.multiply_adds.planned == pl.cost(ensemble, x).multiply_adds
    assert (found.multiply_adds.ratio, found.shared) == (1, ())
    assert ensemble.freeze().explain(x).multiply_adds.planned < found.multiply_adds.planned


# Of the MLP 6-8-8-3 with 10 samples, one member.
PASS = 10 * (6 * 8 + 8 * 8 + 8 * 3)
LOW_RANK = 2 * (8 * 6 + 8 * 8)  # the last layer is each member's own
DIRECTIONS = 3 * (6 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3)


@pytest.mark.parametrize(
    ("method", "made", "runs"),
    [
        (LoRAEnsembles(members=2, rank=2), 2 * LOW_RANK, "Looped"),
        (LoRAEnsembles(members=2, rank=2, merge=False), 2 * LOW_RANK, "Looped"),
        (LoRAEnsembles(members=9, rank=2), 9 * LOW_RANK, "Batched"),
        (Hypermodel(draws=4, dimension=3), 4 * DIRECTIONS, "Looped"),
        (BatchEnsemble(members=2), 0, "Looped"),
    ],
    ids=str,
)
def test_multiply_adds_that_make_weights_are_counted(method, made, runs):
    ensemble = pl.convert(zoo.mlp().double(), method, example=x).eval()
    found, rows = ensemble.explain(x), len(ensemble.weights)
    assert found.engines[-1] == (runs, "")
    assert found.making == Saving(made, made)
    assert found.multiply_adds == Saving(rows * PASS + made, rows * PASS + made)
    assert found.multiply_adds.planned == pl.cost(ensemble, x).multiply_adds
    assert ("of these, for weights" in str(found)) == bool(made)


@pytest.mark.parametrize("prior", ["networks", "random_features"])
def test_prior_networks_have_weights_to_make_too(prior):
    method = Hypermodel(draws=4, dimension=3, prior_scale=1.0, prior=prior)
    ensemble = pl.convert(zoo.mlp().double(), method, example=x).eval()
    found = ensemble.explain(x)
    assert found.prior.making == found.making == Saving(4 * DIRECTIONS, 4 * DIRECTIONS)
    both = found.multiply_adds.planned + found.prior.multiply_adds.planned
    assert both == pl.cost(ensemble, x).multiply_adds == 8 * (PASS + DIRECTIONS)


def test_a_plan_makes_the_weights_of_each_row_that_it_runs():
    ensemble = pl.convert(zoo.mlp().double(), Hypermodel(draws=4, dimension=3), example=x).eval()
    found = ensemble.explain(x, memory=1 << 30)
    assert found.multiply_adds.planned == found.multiply_adds.alone == 4 * (PASS + DIRECTIONS)


def test_frozen_rows_would_make_their_weights_once_for_a_batch_of_any_size(tmp_path):
    method = LoRAEnsembles(members=2, rank=2, merge=False)
    ensemble = pl.convert(zoo.mlp().double(), method, example=x).eval()
    frozen = ensemble.freeze()
    frozen.save(tmp_path / "frozen")
    for one in (frozen, pl.load_frozen(tmp_path / "frozen")):
        assert one.explain(x).multiply_adds.alone == 2 * (PASS + LOW_RANK)
        assert one.explain(x).multiply_adds.planned == pl.cost(one, x).multiply_adds


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.sampled(2)
def test_numbers_of_a_live_ensemble_are_those_of_a_run(name):
    case = case_named("residual_cnn")
    ensemble = pl.convert(case.model(), SMALL[name], example=case.inputs())
    ensemble.after_step(1.0)  # SWAG has no members before
    found = ensemble.eval().explain(case.inputs())
    known = [one.multiply_adds.planned for one in (found, found.prior) if one]
    assert sum(known) == pl.cost(ensemble, case.inputs()).multiply_adds
