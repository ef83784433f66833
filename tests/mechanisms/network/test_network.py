"""Network: a copy of the user's module, or what their factory builds."""

import threading

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import ConversionError, UnreadableError
from pluribus.mechanisms.graph.export import read_graph
from pluribus.mechanisms.network import network as network_module
from pluribus.mechanisms.network.network import Network, built, copy_module
from pluribus.methods import EMP, BatchEnsemble, DeepEnsembles, Masksembles, MCDropout, Single
from tests.cases import CASES, case_named, each, logits, run
from tests.zoo import mlp


@each(CASES)
def test_the_network_is_a_copy_that_computes_the_same(case):
    model, x = case.model().eval(), case.inputs()
    network = Network(model)
    assert network.kind == type(model).__name__
    assert not {id(p) for p in model.parameters()} & {id(p) for p in network.module.parameters()}
    assert_close(logits(run(network.module, x)), logits(run(model, x)), rtol=0, atol=0)


@each(CASES)
def test_tensors_are_named_once_and_saved_ones_are_the_users(case):
    model = case.model()
    network = Network(model)
    identities = [id(tensor) for tensor in network.tensors().values()]
    assert len(set(identities)) == len(identities)
    assert network.persistent() == set(model.state_dict())


def test_unsaved_buffers_are_tensors_but_not_persistent():
    network = Network(case_named("custom_matmul").model())
    assert "shift" in network.tensors()
    assert "shift" not in network.persistent()


def test_modes_of_single_layers_are_copied():
    model = case_named("batch_norm_mlp").model()
    model[1].eval()
    assert [layer.training for layer in Network(model).module] == [True, False, True, True]


class MeanOfPadded(nn.Module):
    """A mean over all positions, padded ones too."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(8, 3)

    def forward(self, x, mask):
        return self.head(self.encoder(x, src_key_padding_mask=mask).mean(1))


@pytest.mark.parametrize("method", [Masksembles(members=2), EMP(), BatchEnsemble(members=2)], ids=str)
def test_padded_positions_count_in_prediction_as_they_do_in_training(method):
    x, mask = torch.randn(3, 5, 8), torch.zeros(3, 5, dtype=torch.bool)
    mask[1, 3:] = True
    ensemble = pl.convert(MeanOfPadded().eval(), method, example=(x, mask)).eval()
    with_gradients = ensemble(x, mask).detach()
    with torch.no_grad():
        assert_close(ensemble(x, mask), with_gradients)
    frozen = ensemble.freeze()
    assert frozen.kinds, frozen.notes
    assert_close(frozen(x, mask), with_gradients)


def test_a_module_that_cannot_be_copied_is_refused_with_a_remedy():
    model = mlp()
    model.lock = threading.Lock()
    with pytest.raises(
        ConversionError, match=r"Sequential must be copied and cannot be: .*lock.* a __deepcopy__"
    ):
        copy_module(model)


class Lock:
    def __init__(self):
        self.lock = threading.Lock()

    def __deepcopy__(self, memo):
        return Lock()


def test_the_remedy_helps():
    model = mlp()
    model.lock = Lock()
    assert pl.convert(model, DeepEnsembles(members=2))(torch.zeros(4, 6)).shape == (2, 4, 3)


def weight_normed():
    with pytest.warns(FutureWarning, match="deprecated"):
        return nn.Sequential(torch.nn.utils.weight_norm(nn.Linear(6, 8)), nn.Linear(8, 3))


@pytest.mark.parametrize("start", ["module", "factory", "module that has run"])
@pytest.mark.parametrize("method", [Single(), DeepEnsembles(members=2)], ids=str)
def test_tensors_that_were_computed_and_kept_do_not_hinder_a_copy(method, start):
    model = weight_normed()
    if "run" in start:
        model(torch.zeros(4, 6))
    ensemble = pl.convert(weight_normed if start == "factory" else model, method)
    x = torch.ones(4, 6)
    assert_close(ensemble(x), torch.stack([ensemble.member(i)(x) for i in range(len(ensemble.weights))]))


def test_a_factory_is_called_and_what_it_builds_is_used():
    model = mlp()
    network = Network(lambda: model)
    assert network.module is model
    assert network.factory is not None
    assert Network(model).factory is None


@pytest.mark.parametrize("model", [3, None, "mlp", torch.zeros(2)], ids=lambda value: type(value).__name__)
def test_neither_a_module_nor_a_factory_is_refused(model):
    with pytest.raises(ConversionError, match=r"must be a torch\.nn.Module or a factory of one, got"):
        Network(model)


def test_a_factory_with_arguments_is_refused_with_their_names():
    with pytest.raises(ConversionError, match="got one that needs in_features, out_features"):
        Network(nn.Linear)


def test_a_factory_of_something_else_is_refused():
    with pytest.raises(ConversionError, match=r"the factory must build a torch\.nn\.Module, got int"):
        built(lambda: 3)


METHODS = [Single(), DeepEnsembles(members=2), BatchEnsemble(members=2), MCDropout(draws=2)]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_same_seed_makes_the_same_ensemble_of_a_factory(method):
    first, again = (pl.convert(mlp, method, seed=3).state_dict() for _ in range(2))
    assert_close(dict(first), dict(again), rtol=0, atol=0)


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("model", [mlp(), mlp], ids=["module", "factory"])
def test_conversion_leaves_random_numbers_as_they_were(method, model):
    before = torch.get_rng_state()
    pl.convert(model, method)
    assert_close(torch.get_rng_state(), before)


@pytest.mark.parametrize("seed", [2**32, 2**53, 2**63, 2**64])
@pytest.mark.parametrize("method", METHODS[1:], ids=str)
def test_every_seed_is_a_seed(method, seed):
    pl.convert(mlp(), method, seed=seed)


def test_uninitialised_parameters_are_refused_with_a_remedy():
    with pytest.raises(ConversionError, match="LazyLinear"):
        pl.convert(nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), DeepEnsembles(members=2))


def test_a_factory_of_widths_builds_the_network_at_width_one():
    network = Network(lambda width: nn.Linear(6, int(8 * width)))
    assert network.module.out_features == 8
    assert network.factory().out_features == 8
    assert network.by_width(0.5).out_features == 4
    assert Network(lambda width=1.0: nn.Linear(6, 8)).by_width is None


def test_a_network_may_become_another_module():
    network = Network(nn.Linear(6, 8), torch.randn(2, 6))
    before = network.graph(False)
    network.become(nn.Linear(6, 4))
    assert network.factory is None
    assert network.graph(False) is not before
    assert network.tensors()["weight"].shape == (4, 6)


def test_a_data_flow_that_cannot_be_read_is_tried_once(monkeypatch):
    case, tried = case_named("data_dependent"), []
    monkeypatch.setattr(network_module, "read_graph", lambda *given: tried.append(1) or read_graph(*given))
    network = Network(case.model(), case.inputs())
    for _ in range(2):
        with pytest.raises(UnreadableError):
            network.graph(training=False)
    assert tried == [1]


def lazy():
    return nn.Sequential(nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.ReLU(), nn.LazyLinear(3))


@pytest.mark.parametrize("given", [lazy(), lazy], ids=["module", "factory"])
@pytest.mark.parametrize("method", [Single(), DeepEnsembles(members=2), BatchEnsemble(members=2)], ids=str)
def test_lazy_layers_get_weights_from_the_example(method, given):
    x = torch.randn(5, 6)
    first = pl.convert(given, method, example=x, seed=3).eval()
    again = pl.convert(given, method, example=x, seed=3).eval()
    assert first(x).shape == (len(first.weights), 5, 3)
    # The same seed draws the same weights, and batches normalise by the first statistics.
    assert_close(first(x), again(x), rtol=0, atol=0)
    if method.kind() == "deep_ensembles":
        assert not torch.allclose(first(x)[0], first(x)[1])
    if isinstance(given, nn.Module):
        assert isinstance(given[0].weight, nn.UninitializedParameter)


def test_lazy_layers_without_an_example_are_refused_with_the_remedy():
    with pytest.raises(ConversionError, match=r"LazyLinear.*Pass example="):
        pl.convert(lazy(), Single())
