"""Patches: which layers they are, by words, patterns, types and predicates, and what is refused."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import ConversionError, SettingError
from pluribus.methods import EMP
from tests import zoo
from tests.cases import case_named, seeded

X = torch.randn(10, 6, dtype=torch.float64, generator=seeded(0))


def network():
    torch.manual_seed(0)
    return zoo.batch_norm_mlp().double()


@pytest.mark.parametrize(
    ("where", "sites"),
    [
        ("norm", ("1",)),
        ("input", ("0",)),
        (("input", "output"), ("0", "3")),
        (("norm", "0"), ("0", "1")),
        ("*", ("0", "1", "3")),
    ],
)
def test_patches_are_named_by_words_and_patterns(where, sites):
    ensemble = pl.convert(network(), EMP(2, where=where))
    assert ensemble.sites == sites
    assert {row.names[0] for row in ensemble.conversion.converted} == set(sites)


@pytest.mark.parametrize(
    ("where", "named", "sites"),
    [
        (nn.Linear, ("0", "3"), ("0", "3")),
        (lambda name, layer: name == "0", ("0",), ("0",)),
        (("norm", lambda name, layer: name < "2"), ("norm", "0", "1"), ("0", "1")),
        ([nn.BatchNorm1d, "output"], ("1", "output"), ("1", "3")),
    ],
)
def test_patches_are_picked_by_types_and_predicates_and_named_by_the_ensemble(where, named, sites, tmp_path):
    ensemble = pl.convert(network(), EMP(2, where)).eval()
    assert (ensemble.sites, ensemble.method) == (sites, EMP(2, named))
    ensemble.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", network()).eval()
    assert_close(loaded(X), ensemble(X), rtol=0, atol=0)


def test_a_predicate_names_its_layers_whatever_they_are_called():
    """A layer may be called as one of the words, or have the signs of patterns in its name."""
    model = nn.Sequential()
    for name in ("norm", "norm[0]", "output", "last"):
        model.add_module(name, nn.LayerNorm(6) if name.startswith("norm") else nn.Linear(6, 6))
    for name in ("norm", "norm[0]", "output"):
        ensemble = pl.convert(model, EMP(2, lambda layer, _, name=name: layer == name))
        assert pl.convert(model, ensemble.method).sites == ensemble.sites == (name,)
    root = pl.convert(nn.Linear(6, 3), EMP(2, nn.Linear))
    assert (root.method.where, root.sites) == (("",), ("",))


def test_overrides_may_be_the_method_with_other_settings_whatever_picks_the_layers():
    method = EMP(4, where=nn.Linear)
    ensemble = pl.convert(network(), method, overrides={"3": replace(method, options=2)})
    assert (ensemble.sites, ensemble.members.tensors.sizes) == (("0", "3"), {"0": 4, "3": 2})


def test_what_selects_layers_is_named_before_it_goes_to_a_file():
    with pytest.raises(
        SettingError, match=r"name patterns where a file is written, as convert\(...\).method"
    ):
        EMP(where=(nn.Linear, "norm")).to_dict()
    with pytest.raises(ConversionError, match="where must pick at least one layer, got none: Conv2d"):
        pl.convert(network(), EMP(where=nn.Conv2d))


def test_include_picks_patches_by_type_or_predicate_in_place_of_where():
    assert pl.convert(network(), EMP(2), include=nn.Linear).sites == ("0", "3")
    assert pl.convert(network(), EMP(2), include=lambda name, layer: name == "0").sites == ("0",)
    assert pl.convert(network(), EMP(2), exclude="3").sites == ("1",)


class Idle(nn.Module):
    """Has norms that never run, and others that do."""

    def __init__(self):
        super().__init__()
        self.norm, self.spare, self.head = nn.LayerNorm(6), nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(self.norm(x))


class Undecided(Idle):
    """Decides by a value, so that its data flow cannot be read."""

    def forward(self, x):
        y = super().forward(x)
        return y if y.sum() > 0 else -y


@pytest.mark.parametrize("build", [Idle, Undecided])
def test_norms_that_never_run_are_not_patched(build):
    ensemble = pl.convert(build().double(), EMP(3), example=X)
    assert ensemble.sites == ("norm", "head")
    assert ensemble.conversion["spare"].reason == "not read in eval mode"


class Spare(Idle):
    """Has norms, none of which runs."""

    def forward(self, x):
        return self.head(x)


def test_a_network_none_of_whose_norms_runs_has_none_to_patch():
    ensemble = pl.convert(Spare().double(), EMP(3), example=X)
    assert ensemble.sites == ("head",)
    assert "no norm is patched" in ensemble.conversion.notes
    with pytest.raises(ConversionError, match="must have a trained layer to patch"):
        pl.convert(Spare().double(), EMP(3, "norm"), example=X)


class Route(Idle):
    """Takes one norm for short sequences and another for long ones."""

    def forward(self, x):
        return self.head((self.norm(x) if x.shape[1] < 4 else self.spare(x)).mean(1))


@pytest.mark.parametrize("example", [None, torch.zeros(2, 3, 6).double()])
def test_a_loaded_ensemble_has_the_patches_that_were_saved_whatever_the_example(example, tmp_path):
    long = torch.randn(2, 5, 6, generator=seeded(1)).double()
    ensemble = pl.convert(Route().double(), EMP(2), example=long).eval()
    assert ensemble.sites == ("spare", "head")
    ensemble.save(tmp_path / "run")
    loaded = pl.load(tmp_path / "run", Route().double(), example=example)
    assert loaded.sites == ensemble.sites
    assert_close(loaded(long), ensemble(long))
    loaded.save(tmp_path / "again")
    assert pl.load(tmp_path / "again", Route().double(), example=example).sites == ensemble.sites


def test_a_network_whose_norms_cannot_be_patched_says_so():
    plain = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3))
    note = "no norm is patched"
    assert note in pl.convert(plain, EMP()).conversion.notes
    assert note not in pl.convert(network(), EMP()).conversion.notes
    assert note not in pl.convert(plain, EMP(where="output")).conversion.notes
    assert note not in pl.convert(plain, EMP(), include=nn.Linear).conversion.notes


def test_every_kind_of_norm_is_patched():
    for norm in (nn.GroupNorm(4, 8), nn.InstanceNorm2d(8, affine=True), nn.BatchNorm2d(8)):
        names = {row.names[0] for row in pl.convert(zoo.normed_cnn(norm), EMP(2)).conversion.converted}
        assert len(names) == 2
    layers = pl.convert(case_named("transformer_layer").model(), EMP(2, where="norm")).conversion.converted
    assert {row.kind for row in layers} == {"LayerNorm"}


def test_what_is_left_has_the_reason_why():
    plain = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3), nn.LayerNorm(3))
    plain[3].requires_grad_(False)
    rows = pl.convert(plain, EMP()).conversion.rows
    assert [row.reason for row in rows] == ["not in where", "no parameters", "", "frozen"]
    ensemble = pl.convert(plain, EMP(), overrides={"0": {"options": 3}})
    assert ensemble.conversion["0"].reason == "not in where, whatever overrides say"


def test_a_network_without_such_layers_is_refused():
    with pytest.raises(ConversionError, match="must have a trained layer to patch, got where='norm'"):
        pl.convert(zoo.mlp(), EMP(where="norm"))
    with pytest.raises(
        ConversionError, match=r"where must pick at least one layer.*words are norm, input, output"
    ):
        pl.convert(zoo.mlp(), EMP(where="head"))
    with pytest.raises(ConversionError, match=r"Did you mean 'output'\?"):
        pl.convert(zoo.mlp(), EMP(where="ouput"))
