"""Layers: every layer once, with all of its names; selecting some; telling norms from others."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from pluribus.errors import ConversionError
from pluribus.mechanisms.network.layers import find_sites, is_norm, select, there_are
from tests import zoo
from tests.cases import CASES, case_named, each


def sites_of(model):
    return {site.name: site for site in find_sites(model)}


@each(CASES)
def test_every_parameter_belongs_to_a_site(case):
    model = case.model()
    names = {name for name, _ in model.named_parameters()}
    sites = find_sites(model)
    assert {name for site in sites for name in site.parameters} == names
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {name for site in sites for name in site.trained} == trained


@each(CASES)
def test_every_layer_is_one_site_and_all_its_names_lead_to_it(case):
    model = case.model()
    sites = find_sites(model)
    assert len({id(site.module) for site in sites}) == len(sites)
    for site in sites:
        assert all(model.get_submodule(name) is site.module for name in site.names)
        assert all(parent._modules[key] is site.module for parent, key in site.parents)
        assert len(site.names) >= len(site.parents)
    order = [name for name, _ in model.named_modules()]
    assert [site.name for site in sites] == sorted((site.name for site in sites), key=order.index)


@each(CASES)
def test_every_statistic_belongs_to_a_site(case):
    model = case.model()
    running = {name for name, _ in model.named_buffers() if "running" in name or name.endswith(("_u", "_v"))}
    assert running <= {name for site in find_sites(model) for name in site.statistics}


def test_a_repeated_child_has_all_its_names_and_parents():
    model = zoo.repeated_child()
    site = sites_of(model)["1.0"]
    assert site.names == ("1.0", "1.2", "3.1")
    assert {(id(parent), key) for parent, key in site.parents} >= {(id(model[1]), "0"), (id(model[3]), "1")}
    assert site.parameters == ("1.0.weight", "1.0.bias")
    assert site.tied == ()
    assert str(site) == "1.0 (Linear)"


def test_a_child_that_a_parent_has_twice_has_two_places_in_it():
    model = zoo.repeated_child()
    places = {(id(parent), key) for parent, key in sites_of(model)["1.0"].parents}
    assert places == {(id(model[1]), "0"), (id(model[1]), "2"), (id(model[3]), "1")}


def test_the_root_is_a_site_without_a_name():
    (site,) = find_sites(nn.Linear(6, 3))
    assert site.names == ("",)
    assert site.parents == ()
    assert site.parameters == ("weight", "bias")
    assert str(site) == "the network itself (Linear)"


def test_a_parent_with_tensors_of_its_own_is_a_site_beside_its_children():
    sites = sites_of(zoo.MiniViT())
    assert sites[""].parameters == ("token", "positions")
    assert sites["qkv"].parameters == ("qkv.weight", "qkv.bias")


def test_a_parent_without_tensors_is_none():
    assert list(sites_of(zoo.residual_cnn())) == [
        "0",
        "1",
        "2",
        "3.0",
        "3.1",
        "3.2",
        "3.3",
        "4",
        "5",
        "6",
        "7",
    ]


def test_tied_parameters_are_named_by_their_first_name_in_both_layers():
    sites = sites_of(zoo.tied_linears())
    assert sites["1"].tied == sites["3"].tied == ("1.weight",)
    assert sites["3"].parameters == ("1.weight", "3.bias")
    sites = sites_of(zoo.tied_embedding())
    assert sites["0"].tied == sites["4"].tied == ("0.weight",)
    assert sites["1"].tied == ()


def test_attention_is_one_site_with_all_that_is_inside():
    sites = sites_of(zoo.Attention())
    assert set(sites) == {"embed", "attention", "head"}
    assert set(sites["attention"].parameters) == {
        f"attention.{name}" for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    }


def test_a_parametrised_layer_is_one_site_with_its_parametrisation():
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(6, 3)), nn.ReLU())
    site = sites_of(model)["0"]
    assert set(sites_of(model)) == {"0", "1"}
    originals = {f"0.parametrizations.weight.original{i}" for i in (0, 1)}
    assert set(site.parameters) == {"0.bias", *originals}
    spectral = sites_of(nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 3))))["0"]
    assert {name.rsplit(".", 1)[-1] for name in spectral.statistics} == {"_u", "_v"}


def test_lists_of_parameters_are_layers():
    (site,) = find_sites(zoo.ListedParameters())
    assert site.kind == "ParameterList"
    assert site.parameters == ("weights.0", "weights.1")


def test_frozen_layers_know_it():
    sites = sites_of(zoo.frozen_trunk())
    assert sites["0"].frozen
    assert sites["0"].trained == ()
    assert not sites["7"].frozen
    assert not sites["2"].frozen  # a ReLU has nothing to freeze
    layer = nn.Linear(6, 3)
    layer.weight.requires_grad_(False)
    (site,) = find_sites(layer)
    assert not site.frozen
    assert site.trained == ("bias",)


def test_statistics_are_what_training_changes():
    assert sites_of(zoo.batch_norm_mlp())["1"].statistics == (
        "1.running_mean",
        "1.running_var",
        "1.num_batches_tracked",
    )
    assert sites_of(zoo.batch_norm_mlp())["0"].statistics == ()
    indices = nn.Module()
    indices.register_buffer("positions", torch.arange(3))
    assert find_sites(indices)[0].statistics == ()


def test_sites_can_be_keys():
    first, second = find_sites(case_named("mlp").model())[:2]
    assert {first: 1, second: 2}[first] == 1
    assert first != second


def selected(model, selector):
    return [site.name for site in select(find_sites(model), selector, "include")]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (nn.Linear, ["7"]),
        (nn.Conv2d, ["0", "3.0", "3.3"]),
        (nn.modules.conv._ConvNd, ["0", "3.0", "3.3"]),
        ("3.*", ["3.0", "3.1", "3.2", "3.3"]),
        ("*0", ["0", "3.0"]),
        ("[01]", ["0", "1"]),
        ("7", ["7"]),
        (lambda name, layer: getattr(layer, "bias", 0) is None, ["0"]),
        ([nn.Linear, "0"], ["0", "7"]),
        ((["7"], ("0", nn.BatchNorm2d)), ["0", "1", "3.1", "7"]),
        ({"0", "7"}, ["0", "7"]),
        ((one for one in ("7", "0")), ["0", "7"]),
    ],
)
def test_layers_are_selected_in_their_order(selector, expected):
    assert selected(zoo.residual_cnn(), selector) == expected


def test_every_name_of_a_layer_selects_it_once():
    for name in ("1.0", "1.2", "3.1", ["1.0", "3.1"], lambda name, layer: name == "3.1"):
        assert selected(zoo.repeated_child(), name) == ["1.0"]


def test_the_root_is_selected_by_the_empty_name():
    assert selected(nn.Linear(3, 2), "") == [""]
    assert selected(nn.Linear(3, 2), "*") == [""]


def test_case_matters_in_names():
    with pytest.raises(ConversionError, match="'HEAD' picks none"):
        selected(zoo.SharedModule(), "HEAD")


@pytest.mark.parametrize(
    ("selector", "shown"),
    [
        (nn.GRU, "GRU"),
        ("heads", "'heads'"),
        (["head", "heads"], "'heads'"),
        (lambda name, layer: False, "<function"),
    ],
)
def test_a_selector_that_picks_nothing_is_refused_with_what_there_is(selector, shown):
    message = (
        rf"include must pick at least one layer, got none: {shown}.*type Linear, named first, middle, head\."
    )
    with pytest.raises(ConversionError, match=message):
        selected(zoo.SharedModule(), selector)


@pytest.mark.parametrize("selector", [[], (), set()], ids=str)
def test_no_selector_selects_nothing(selector):
    assert selected(zoo.SharedModule(), selector) == []


@pytest.mark.parametrize("selector", [3, int, None, [3.0], nn.Linear(2, 2)], ids=str)
def test_what_is_no_selector_is_refused(selector):
    with pytest.raises(
        ConversionError, match="include must be layer types, name patterns or predicates, got"
    ):
        selected(zoo.SharedModule(), selector)


def test_errors_name_the_option():
    with pytest.raises(ConversionError, match=r"^exclude must pick"):
        select(find_sites(nn.Linear(3, 2)), "x", "exclude")


def test_there_are_names_types_and_at_most_eight_layers():
    assert there_are([]) == "The network has layers of type none, named nothing."
    assert there_are(find_sites(nn.Linear(3, 2))) == "The network has layers of type Linear, named ''."
    sites = find_sites(nn.Sequential(*(nn.ReLU() for _ in range(10))))
    assert there_are(sites).endswith("of type ReLU, named 0, 1, 2, 3, 4, 5, 6, 7 and 2 more.")


NORMS = [
    *(nn.BatchNorm1d(4), nn.BatchNorm2d(4), nn.SyncBatchNorm(4), nn.InstanceNorm2d(4, affine=True)),
    *(nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.RMSNorm(4), nn.LocalResponseNorm(2)),
]
OTHERS = [nn.Linear(4, 4), nn.Conv2d(4, 4, 1), nn.PReLU(), nn.Embedding(4, 4), nn.LSTM(4, 4)]


def kind(layer):
    return type(layer).__name__


class FrozenBatchNorm2d(nn.Module):
    """As detection networks have it: no layer of torch's, but a norm by its name."""


class ResponseGRN(nn.Module):
    """Global response normalisation, by its name."""


class ResidualGRN(nn.Linear):
    """A gated residual network."""


class NormConv2d(nn.Conv2d):
    """A convolution that is normed."""


class NormalDraw(nn.PReLU):
    """Has the letters in another word."""


def normalises(layer):
    (site,) = find_sites(layer)
    return is_norm(site)


@pytest.mark.parametrize("layer", [*NORMS, FrozenBatchNorm2d(), ResponseGRN()], ids=kind)
def test_a_norm_is_one(layer):
    assert normalises(layer)


@pytest.mark.parametrize(
    "layer",
    [*OTHERS, NormConv2d(4, 4, 1), ResidualGRN(4, 4), NormalDraw()],
    ids=kind,
)
def test_a_layer_of_weights_is_none(layer):
    assert not normalises(layer)


def test_a_norm_may_be_called_a_kind_of_norm():
    class LayerNormWithGate(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1, 4, 1, 1))

    assert normalises(LayerNormWithGate())


def test_a_layer_with_a_normed_weight_is_no_norm():
    assert not normalises(parametrizations.weight_norm(nn.Linear(4, 4)))
    assert not normalises(parametrizations.spectral_norm(nn.Linear(4, 4)))


def test_the_norms_of_other_libraries_are_found():
    found = {site.kind for site in find_sites(zoo.hf_convnext()) if is_norm(site)}
    assert found == {"ConvNextLayerNorm", "LayerNorm"}
