"""Frozen: always in eval mode, without gradients, and able to say what its rows share."""

import copy
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch import nn
from torch.fx import GraphModule
from torch.testing import assert_close

import pluribus as pl
from pluribus.backbones import mlp
from pluribus.mechanisms.graph.cost import Meter
from pluribus.mechanisms.running.kinds import takes_any_batch
from pluribus.methods import EMP, SAE, DeepEnsembles, DeepSubEnsembles, Masksembles, Single
from tests.cases import blocks, case_named

METHODS = [DeepEnsembles(members=2), DeepSubEnsembles(members=2), Masksembles(members=2)]


def frozen(method):
    case = case_named("residual_cnn")
    return pl.convert(case.model(), method, example=case.inputs()).train().freeze(), case.inputs()


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_frozen_ensemble_stays_in_eval_mode_and_has_no_gradients(method):
    network, x = frozen(method)
    before = network(x)
    assert_close(network.train()(x), before, rtol=0, atol=0)
    assert not any(module.training for module in network.modules())
    assert not before.requires_grad
    assert not any(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_members_count_alike_where_nothing_else_is_learnt(method):
    assert_close(frozen(method)[0].weights, torch.full((2,), 0.5))


def test_frozen_exits_count_as_much_as_they_did():
    ensemble = pl.convert(blocks(3), SAE(inputs=1, exits=2), example=torch.zeros(2, 6)).eval()
    ensemble.members.index.logits.data = torch.tensor([[3.0, 0.0, 1.0]])
    network, x = ensemble.freeze(), torch.randn(4, 6)
    assert_close(network.weights, torch.tensor([3.0, 1.0]).softmax(0))
    mean = torch.einsum("m,mbc->bc", network.weights, network(x).softmax(-1))
    assert_close(mean, ensemble.predict(x).probabilities)


@pytest.mark.parametrize(
    "method",
    [*METHODS, EMP(3, draws=7, perturbation=0.5), SAE(inputs=1, exits=2)],
    ids=lambda one: one.kind(),
)
@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.sampled(2)
def test_a_frozen_ensemble_predicts_what_the_ensemble_does(method, chunk):
    case = case_named("residual_cnn")
    x = case.inputs()
    ensemble = pl.convert(case.model(), method, example=x).eval()
    found, expected = ensemble.freeze().predict(x, chunk=chunk), ensemble.predict(x)
    assert_close(found.weights, expected.weights)
    assert_close(found.probabilities, expected.probabilities)


def test_what_a_frozen_ensemble_cannot_predict_is_refused():
    network, x = frozen(DeepEnsembles(members=2))
    with pytest.raises(pl.SettingError, match="chunk must be at least 1"):
        network.predict(x, chunk=0)
    with pytest.raises(pl.InputError, match=r"inputs must be finite, however: .* hold NaN"):
        network.predict(torch.full_like(x, torch.nan))


def test_a_frozen_ensemble_says_what_its_rows_share():
    network, x = frozen(DeepSubEnsembles(members=2))
    found = network.explain(x)
    assert found.reason == ""
    assert found.shared
    assert pl.cost(network, x).multiply_adds == found.multiply_adds.planned


def test_members_that_are_cut_out_say_whether_they_run_together():
    x = torch.randn(4, 6)
    ensemble = pl.convert(mlp(6, 3, hidden=(20, 30)), Masksembles(members=2), example=x)
    assert str(ensemble.freeze().explain(x)).startswith("2 rows, 2 at a time")
    uneven, x = frozen(Masksembles(members=2))
    found = uneven.explain(x)
    assert str(found).startswith("2 rows, one after the other: they are cut out by their masks, to different")
    assert found.multiply_adds.planned == pl.cost(uneven, x).multiply_adds < found.multiply_adds.alone


def test_a_frozen_ensemble_writes_into_no_statistics():
    network, x = frozen(DeepEnsembles(members=2))
    before = [buffer.clone() for buffer in network.buffers()]
    network(torch.full_like(x, 9.0))
    assert_close(list(network.buffers()), before, rtol=0, atol=0)


def test_eight_threads_share_one_graph():
    network, x = frozen(DeepSubEnsembles(members=3))
    parts = [x[:count] for count in range(1, 9)]
    expected = [network(part) for part in parts]

    def call(place):
        return all(torch.equal(network(parts[place]), expected[place]) for _ in range(25))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call, range(8)))


@pytest.mark.parametrize("bound", [None, 1 << 24])
def test_what_is_counted_leaves_the_tensors_to_other_threads(bound, monkeypatch):
    case = case_named("residual_cnn")
    ensemble = pl.convert(case.model(), DeepEnsembles(members=2), example=case.inputs())
    network, dispatch, seen = ensemble.freeze(memory=bound), Meter.__torch_dispatch__, set()

    def watched(self, *args, **kwargs):
        seen.update(type(tensor) for tensor in network.module.parameters())
        return dispatch(self, *args, **kwargs)

    monkeypatch.setattr(Meter, "__torch_dispatch__", watched)
    network.explain(case.inputs())
    network.predict(case.inputs())
    assert seen == {nn.Parameter}


def test_threads_run_while_others_explain_and_count():
    network, x = frozen(DeepSubEnsembles(members=3))
    expected = network(x)

    def call(place):
        if place % 2:
            return all(torch.equal(network(x), expected) for _ in range(50))
        for _ in range(3):
            network.explain(x)
            pl.cost(network, x)
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(call, range(8)))


@pytest.mark.parametrize("kind", ["input", "view", "constant"])
def test_outputs_share_no_memory_with_inputs_and_weights(kind):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.constant = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

        def forward(self, x):
            views = {"input": x, "view": x.unflatten(1, (2, 2)), "constant": self.constant.expand(len(x), 4)}
            return views[kind]

    x = torch.randn(3, 4)
    network = pl.convert(Odd(), Single(), example=x).freeze()
    before, expected = x.clone(), network(x).clone()
    network(x).add_(1)
    assert torch.equal(x, before)
    assert torch.equal(network(x), expected)
    assert torch.equal(network.module(x), expected)


def test_other_inputs_are_refused_by_name_or_have_a_graph_of_their_own():
    pooled = nn.Sequential(nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    small, large = torch.randn(2, 2, 8, 8), torch.randn(2, 2, 12, 12)
    ensemble = pl.convert(pooled, DeepEnsembles(members=2), example=small).eval()
    network = ensemble.freeze()
    for other in (large, small.double(), small[:, :1]):
        with pytest.raises(pl.InputError, match=r"frozen for, \(float32\[2, 2, 8, 8\]\), got"):
            network(other)
    both = ensemble.freeze(examples=[small, large])
    for x in (small, large):
        assert_close(both(x), ensemble(x).detach())
    with pytest.raises(pl.InputError, match="examples must be a list"):
        ensemble.freeze(examples=[])


def test_memory_bounds_the_samples_of_a_prediction():
    case = case_named("residual_cnn")
    x = torch.cat([case.inputs()] * 4)
    ensemble = pl.convert(case.model(), DeepEnsembles(members=2), example=x).eval()
    whole = pl.cost(ensemble.freeze(), x).peak_activation_bytes
    network, peaks = ensemble.freeze(memory=whole // 3), []
    original = network._predict

    def watched(inputs):
        peaks.append(pl.cost(network, *inputs.args).peak_activation_bytes)
        return original(inputs)

    network._predict = watched
    assert_close(network.predict(x).probabilities, ensemble.predict(x).probabilities)
    assert 0 < max(peaks) <= whole // 3
    with pytest.raises(pl.InputError, match=r"memory must be at least \d+ bytes for one sample"):
        ensemble.freeze(memory=1).predict(x)


class NamesItsPrecision(nn.Module):
    """Code that names a precision: a frozen graph that is cast must name the new one."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
        self.last = nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.hidden(x).to(torch.float32))


@pytest.mark.parametrize("as_rows", [False, True])
def test_precision_in_the_code_follows_a_cast(as_rows, monkeypatch):
    # Beyond so many nodes, rows call a graph of their own.
    monkeypatch.setattr("pluribus.mechanisms.running.lowering.NODES", 1 if as_rows else 5000)
    x = torch.randn(5, 4)
    ensemble = pl.convert(NamesItsPrecision(), DeepEnsembles(members=3), example=x).eval()
    network = ensemble.freeze()
    assert hasattr(network.module, "row") == as_rows
    expected = network(x).double()
    assert_close(copy.deepcopy(network).double()(x.double()), expected, rtol=1e-5, atol=1e-5)
    for part in (part for part in copy.deepcopy(network).double().modules() if isinstance(part, GraphModule)):
        assert not any(torch.float32 in node.args for node in part.graph.nodes)
    half = copy.deepcopy(network).bfloat16()(x.bfloat16())
    assert_close(half.double(), expected, rtol=0.1, atol=0.1)


def test_memory_cuts_no_batch_whose_samples_depend_on_one_another():
    norm = nn.BatchNorm1d(64, track_running_stats=False)
    model, x = nn.Sequential(nn.Linear(6, 64), norm, nn.ReLU(), nn.Linear(64, 3)), torch.randn(64, 6)
    ensemble = pl.convert(model, DeepEnsembles(members=2), example=x[:4]).eval()
    expected = ensemble.predict(x).probabilities
    with pytest.raises(pl.InputError, match="64 samples at once, because they depend on one another"):
        ensemble.freeze(memory=20_000).predict(x)
    assert_close(ensemble.freeze(memory=100_000).predict(x).probabilities, expected)


def test_memory_cuts_no_batch_whose_size_the_network_fixes():
    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            # torch.export takes the number of samples for a number.
            return self.layer(x).transpose(0, 1).reshape(len(x), 3)

    x = torch.randn(4, 6)
    ensemble = pl.convert(Fixed(), DeepEnsembles(members=2), example=x).eval()
    network = ensemble.freeze(memory=1 << 16)
    assert not takes_any_batch(network.kinds[0].signature)
    assert_close(network.predict(x).probabilities, ensemble.predict(x).probabilities)
    with pytest.raises(pl.InputError, match="because the network takes no other batch"):
        ensemble.freeze(memory=20).predict(x)


def test_memory_bounds_looped_members_too():
    case = case_named("data_dependent")
    x = torch.cat([case.inputs()] * 8)
    ensemble = pl.convert(case.model(), DeepEnsembles(members=2), example=x).eval()
    network, expected = ensemble.freeze(memory=4000), ensemble.predict(x)
    assert not network.kinds
    original, sizes = network._predict, []
    network._predict = lambda inputs: (sizes.append(inputs.batch), original(inputs))[1]
    assert_close(network.predict(x).probabilities, expected.probabilities)
    assert max(sizes) < len(x)
    with pytest.raises(pl.InputError, match=r"memory must be at least \d+ bytes for one sample"):
        ensemble.freeze(memory=1).predict(x)


@pytest.mark.parametrize("method", [DeepEnsembles(members=2), Masksembles(members=2)], ids=str)
def test_the_graph_is_exported_with_any_batch(method):
    network, x = frozen(method)
    dynamic = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(network.module, (x[:3],), dynamic_shapes=dynamic, strict=False)
    for part in (x[:1], x[:7]):
        assert_close(program.module()(part), network(part))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_inputs_that_do_not_fit_are_errors_of_ours(method):
    network, x = frozen(method)
    for bad in (x.to_sparse(), x[:0], x[:, :1], x.float(), x[0], x.bool()):
        with pytest.raises(pl.InputError):
            network(bad)


def test_indices_out_of_range_are_errors_of_ours():
    ids = torch.tensor([[1, 2], [3, 4]])
    network = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 3))
    made = pl.convert(network, DeepEnsembles(members=2), example=ids).eval().freeze()
    with pytest.raises(pl.InputError, match=r"the frozen ensemble failed on .*: index out of range in self"):
        made(ids + 5)
    # With so little room, the memory of a sample is counted first, by a run of its own.
    for most_bytes in (1, 2**28):
        with pytest.raises(pl.InputError, match="the frozen ensemble failed on"):
            made.predict(ids + 5, most_bytes=most_bytes)


@pytest.mark.parametrize("method", ["masksembles", "deep_ensembles(members=2)"])
def test_a_sample_without_its_batch_is_named_with_the_remedy(method):
    layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)]
    ensemble = pl.convert(nn.Sequential(*layers), method)
    network = ensemble.freeze()
    for call in (network, network.predict):
        with pytest.raises(pl.InputError, match=r"got \(float32\[4\]\)\. .* a single sample is x\[None\]"):
            call(torch.zeros(4))
        with pytest.raises(pl.InputError, match="examples="):
            call(torch.zeros(3))


@pytest.mark.parametrize("moved", [False, True])
def test_inputs_without_numbers_are_refused_where_the_graph_has_some(moved):
    frozen = pl.convert(mlp(6, 3), DeepEnsembles(members=2), example=torch.randn(2, 6)).freeze()
    inputs = torch.randn(2, 6)
    if moved:
        frozen = frozen.to("meta")
    else:
        inputs = inputs.to("meta")
    # With so little room, the memory of a sample is counted first, by a run of its own.
    for run in (frozen, frozen.predict, partial(frozen.predict, most_bytes=1)):
        with pytest.raises(pl.InputError, match="must be on the device of the frozen ensemble"):
            run(inputs)
