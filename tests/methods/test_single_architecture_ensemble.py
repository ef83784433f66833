"""SAE: the relaxed draw, the objective, the schedules, its cases."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import SettingError
from pluribus.mechanisms.exits.pairs import preferences
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.engines import run_apart
from pluribus.methods import MIMMO, MIMO, SAE, EarlyExit
from pluribus.methods.single_architecture_ensemble import COLDEST, interpolate, relaxed_top_k
from tests.cases import blocks, seeded
from tests.verify import modes

X = torch.randn(12, 6, generator=seeded(1))
Y = torch.arange(12) % 2


def made(method, depth=3, **options):
    return pl.convert(blocks(depth), method, example=X[:2], **options)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.floats(0.05, 5), st.integers(0, 99))
def test_a_relaxed_draw_sums_to_k_for_each_input(exits, temperature, seed):
    logits = torch.randn(3, 4, generator=seeded(seed), dtype=torch.float64)
    drawn = relaxed_top_k(logits, exits, temperature, seeded(seed + 1))
    assert (drawn >= 0).all()
    assert_close(drawn.sum(1), torch.full((3,), float(exits), dtype=torch.float64))


def test_a_cold_draw_is_ones_and_zeros():
    drawn = relaxed_top_k(torch.randn(50, 5, generator=seeded(0)), 2, 1e-3, seeded(1))
    assert_close(drawn, drawn.round(), atol=1e-3, rtol=0)
    assert_close(relaxed_top_k(torch.randn(3, 4), 4, 1e-3), torch.ones(3, 4), atol=1e-3, rtol=0)


def test_cold_draws_are_draws_without_replacement():
    probabilities = torch.tensor([0.5, 0.3, 0.15, 0.05])
    draws = 20_000
    drawn = relaxed_top_k(probabilities.log().expand(draws, 4), 2, 1e-3, seeded(0)).round()
    for pair in itertools.combinations(range(4), 2):
        first, second = probabilities[list(pair)].tolist()
        expected = first * second / (1 - first) + second * first / (1 - second)
        found = float((drawn[:, list(pair)].sum(1) == 2).float().mean())
        assert found == pytest.approx(expected, abs=4 * math.sqrt(expected / draws))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_draws_of_half_precision_are_finite(dtype):
    torch.manual_seed(0)
    for temperature in (1.0, COLDEST):
        drawn = relaxed_top_k(torch.zeros(20_000, 3, dtype=dtype), 2, temperature)
        assert_close(drawn.sum(1), torch.full((20_000,), 2.0))


def test_one_exit_is_the_gumbel_softmax():
    logits = torch.randn(2, 3, generator=seeded(3))
    uniform = torch.rand(2, 3, generator=seeded(4))
    expected = ((logits - (-uniform.log()).log()) / 0.7).softmax(1)
    assert_close(relaxed_top_k(logits, 1, 0.7, seeded(4)), expected, atol=1e-5, rtol=1e-5)


def test_every_logit_and_weight_gets_a_gradient():
    torch.manual_seed(0)
    ensemble = made(SAE(inputs=2, exits=2, alpha=(0.5, 0.5))).train()
    ensemble.loss(X, Y).backward()
    assert (ensemble.members.index.logits.grad != 0).all()
    for name, parameter in ensemble.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("draw_from", ["preferences", "logits"])
@pytest.mark.parametrize("weighting", ["one", "exits"])
def test_the_objective_is_eq_3(weighting, draw_from):
    schedules = {"alpha": (0.4, 0.2), "temperature": (1.0, 0.5)}
    method = SAE(inputs=2, exits=2, weighting=weighting, draw_from=draw_from, **schedules)
    ensemble = made(method).train()
    ensemble.members.index.logits.data.normal_()
    torch.manual_seed(5)
    found = ensemble.loss(X, Y, progress=0.5)
    torch.manual_seed(5)
    parts = method.assign(len(X), ensemble.members.index.rows(training=True), 0.5)
    slots = [parts[0], parts[3]]
    batches = [Inputs.of(X[part]) for part in parts]
    outputs = run_apart(
        ensemble.members, ensemble.members.index.rows(training=True), batches, modes(ensemble)
    )
    sharper = 0.75 if draw_from == "preferences" else 1.0
    drawn = relaxed_top_k(ensemble.members.index.logits / sharper, 2, 0.75)
    data = sum(
        drawn[slot, depth] * cross_entropy(outputs[3 * slot + depth], Y[slots[slot]])
        for slot in range(2)
        for depth in range(3)
    )
    theta = preferences(ensemble.members.index.logits, 0.75)
    divergence = (theta * (3 * theta).log()).sum()
    assert_close(found, data / (2 if weighting == "one" else 1) + 0.3 * divergence)


def _drawn(method, ensemble):
    """The weights of one draw, as the gradient of the objective by the losses."""
    losses = torch.zeros(3, requires_grad=True)
    method.combine(losses, losses, ensemble.members, 0.0).backward()
    return losses.grad


@pytest.mark.parametrize(("draw_from", "temperature"), [("preferences", 0.5), ("logits", 1.0)])
def test_depths_are_drawn_from_the_preferences(draw_from, temperature):
    """The frequencies of the strongest depth are those of softmax(l / T), or of softmax(l)."""
    method = SAE(inputs=1, exits=1, temperature=(0.5, 0.5), draw_from=draw_from)
    ensemble = made(method).train()
    ensemble.members.index.logits.data = torch.tensor([[0.0, 0.6, 1.0]])
    torch.manual_seed(0)
    weights = torch.stack([_drawn(method, ensemble) for _ in range(4000)])
    frequencies = torch.nn.functional.one_hot(weights.argmax(1), 3).double().mean(0)
    expected = (torch.tensor([0.0, 0.6, 1.0]).double() / temperature).softmax(0)
    assert_close(frequencies, expected, atol=0.03, rtol=0)


def test_training_learns_which_exits_to_keep_and_states_their_temperature():
    torch.manual_seed(0)
    ensemble = made(SAE(inputs=1, exits=1, temperature=(1.0, 0.1))).train()
    optimizer = torch.optim.Adam(ensemble.parameter_groups(1e-2))
    for step in range(20):
        optimizer.zero_grad()
        ensemble.loss(X, Y, progress=step / 20).backward()
        optimizer.step()
    assert ensemble.members.index.logits.detach().abs().max() > 0
    assert float(ensemble.members.index.temperature) == pytest.approx(1.0 - 0.9 * 19 / 20)


def weights_after_training(method):
    torch.manual_seed(0)
    ensemble = made(method, depth=2).train()
    optimizer = torch.optim.Adam(ensemble.parameter_groups(1e-2))
    for step in range(100):
        optimizer.zero_grad()
        ensemble.loss(X, Y, progress=step / 100).backward()
        optimizer.step()
    return ensemble.eval().weights


def test_all_exits_are_alive_after_training_with_the_defaults():
    weights = weights_after_training(SAE(inputs=2, exits=2))
    assert len(weights) == 4
    assert float(weights.min()) > 0.05
    # The defaults of the first version left one exit of each input.
    cold = weights_after_training(SAE(inputs=2, exits=2, temperature=(1.0, 0.01), draw_from="logits"))
    assert int((cold > 0.05).sum()) == 2


def test_logits_are_spared_weight_decay():
    groups = made(SAE()).parameter_groups(0.1, weight_decay=0.3)
    (spared,) = [group for group in groups if group["weight_decay"] == 0]
    assert [tuple(one.shape) for one in spared["params"]] == [(2, 3)]


def test_schedules_are_linear_between_their_ends():
    assert [interpolate((1.0, 0.2), progress) for progress in (0, 0.5, 1)] == pytest.approx([1.0, 0.6, 0.2])
    method = SAE(inputs=2, input_repetition=(0.0, 1.0), batch_repetition=1)
    first, second = method.assign(100, [(0, 0), (1, 0)], 1.0)
    assert first.equal(second)
    first, second = method.assign(100, [(0, 0), (1, 0)], 0.0)
    assert not first.equal(second)


def test_one_input_with_one_depth_is_the_network():
    model = blocks(3)
    ensemble = pl.convert(model, EarlyExit(exits=1), example=X[:2]).eval()
    assert_close(ensemble(X), model(X)[None])
    assert ensemble.case == "single_exit"


def test_the_last_exit_of_a_copied_network_computes_the_network():
    model = blocks(3)
    ensemble = pl.convert(model, SAE(inputs=3, exits=1, start="copy"), example=X[:2]).eval()
    assert ensemble.members.index.rows(training=False) == [(0, 2), (1, 2), (2, 2)]
    assert_close(ensemble(X), model(X).expand(3, -1, -1))


def test_special_cases_coincide_with_their_direct_implementations():
    """MIMO and MIMMO compute what SAE computes with their tensors, and are weighted alike."""
    sae = made(SAE(inputs=2, exits=3)).eval()
    mimmo = made(MIMMO(inputs=2)).eval()
    mimmo.load_state_dict(sae.state_dict())
    assert_close(mimmo(X), sae(X))
    assert_close(mimmo.weights, sae.weights)
    assert sae.case == mimmo.case == "mimmo"
    mimo = made(MIMO(inputs=2)).eval()
    common = {name: value for name, value in sae.state_dict().items() if ".shared.network." in name}
    mimo.load_state_dict(common, strict=False)
    assert_close(mimo(X), sae(X, members=[(0, 2), (1, 2)]))
    early = made(EarlyExit()).eval()
    one = made(SAE(inputs=1, exits=3)).eval()
    early.load_state_dict(one.state_dict())
    assert_close(early(X), one(X))
    assert_close(early.weights, torch.full((3,), 1 / 3))


def test_more_inputs_than_samples_are_no_problem():
    ensemble = made(SAE(inputs=5, exits=1)).train()
    assert torch.isfinite(ensemble.loss(X[:2], Y[:2]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": 0}, "inputs must be at least 1"),
        ({"exits": 0}, "exits must be at least 1"),
        ({"temperature": (1.0, 0.0)}, "temperature at the end must be at least 1e-06"),
        ({"temperature": 1.0}, "temperature must be a pair of numbers"),
        ({"alpha": (-1.0, 0.0)}, "alpha at the start must be at least 0"),
        ({"input_repetition": (0.0, 1.5)}, "input_repetition at the end must be at most 1"),
        ({"batch_repetition": 0}, "batch_repetition must be at least 1"),
        ({"weighting": "none"}, "weighting must be one of 'one', 'exits'"),
        ({"where": ()}, "where must be names or patterns"),
        ({"start": "warm"}, "start must be one of"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    with pytest.raises(SettingError, match=message):
        SAE(**settings)


def test_settings_go_to_a_file_and_back():
    method = SAE(where="layer*", alpha=(0.0, 1.0))
    assert SAE.from_dict({**method.to_dict(), "alpha": [0.0, 1.0], "where": ["layer*"]}) == method


def test_a_saved_ensemble_keeps_its_preferences(tmp_path):
    ensemble = made(SAE(inputs=2, exits=1)).train()
    ensemble.members.index.logits.data.normal_()
    ensemble.loss(X, Y, progress=0.5)
    ensemble.eval().save(tmp_path)
    loaded = pl.load(tmp_path, blocks(3), example=X[:2]).eval()
    assert loaded(X).equal(ensemble(X))
    assert loaded.weights.equal(ensemble.weights)


def test_there_are_fewer_settings_to_try_than_sets_of_exits():
    """§3.2: every nonempty set of exits for each input, against one training for each N and K."""
    depths, inputs = 4, 3
    sets = [kept for size in range(1, depths + 1) for kept in itertools.combinations(range(depths), size)]
    searched = len(list(itertools.product(sets, repeat=inputs)))
    settings = {SAE(inputs=n, exits=k) for n in range(1, inputs + 1) for k in range(1, depths + 1)}
    assert (searched, len(settings)) == ((2**depths - 1) ** inputs, inputs * depths) == (3375, 12)


@pytest.mark.parametrize("kept", [[0, 0], [1, 1], [0, 2], [1, 3], [3, 3]])
def test_a_pruned_configuration_costs_what_its_accounting_says(kept):
    """The trunk up to the deepest exit, a head for each exit that is used, and of heads the rows of inputs
    that exit there.
    """
    ensemble = made(SAE(inputs=2, exits=1), depth=4).eval()
    for slot, depth in enumerate(kept):
        ensemble.members.index.logits.data[slot, depth] = 1.0
    found = pl.cost(ensemble.freeze(), X[:1])
    first, block = 6 * 8, 8 * 8
    trunk = first + (max(kept) + 1) * block
    shallow = {depth for depth in kept if depth < 3}
    rows = len(kept) * 8 * 2
    assert found.multiply_adds == trunk + len(shallow) * block + rows
    biases = 8 + (max(kept) + 1) * 8 + len(shallow) * 8 + len(kept) * 2
    assert found.parameters == found.multiply_adds + biases


def test_files_of_the_version_before_keep_their_schedules():
    first = pl.Method.from_dict({"kind": "sae", "version": 1})
    assert first.draw_from == "logits"
    assert (first.temperature, first.input_repetition) == ((1.0, 0.01), (0.0, 0.0))
    assert pl.Method.from_dict(SAE().to_dict()) == SAE()
