"""The record of a conversion: what it prints, and that it is true."""

import pytest
from torch import nn

import pluribus as pl
from pluribus.conversion_record import Conversion, LayerRecord
from pluribus.errors import InputError
from pluribus.methods import BatchEnsemble, DeepEnsembles, MCDropout, Single
from tests import zoo
from tests.cases import CASES, case_named, each

RECORD = Conversion(
    "Method() on Net",
    (
        LayerRecord(("stem",), "Conv2d", "4 copies"),
        LayerRecord(("a.0", "b.0"), "Linear", "4 copies"),
        LayerRecord(("",), "ReLU", "shared", "no parameters"),
        LayerRecord(("norm",), "LayerNorm", "shared", "excluded"),
        LayerRecord(("other",), "ReLU", "shared", "no parameters"),
    ),
    ("one thing", "another"),
)


def test_a_record_prints_layers_counts_and_notes():
    assert str(RECORD).splitlines() == [
        "Method() on Net",
        "  stem       Conv2d     4 copies",
        "  a.0 = b.0  Linear     4 copies",
        "  (root)     ReLU       shared: no parameters",
        "  norm       LayerNorm  shared: excluded",
        "  other      ReLU       shared: no parameters",
        "2 of 5 layers converted; left: 2 (no parameters), 1 (excluded)",
        "note: one thing",
        "note: another",
    ]


def test_an_empty_record_prints():
    assert str(Conversion("nothing", ())) == "nothing\n0 of 0 layers converted"


def test_rows_are_found_by_any_name():
    assert RECORD["b.0"] is RECORD["a.0"] is RECORD.rows[1]
    assert RECORD[""].kind == "ReLU"
    assert RECORD.converted == RECORD.rows[:2]


def test_a_layer_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(InputError, match=r"layers are stem, a\.0, b\.0, .*, got 'head'"):
        RECORD["head"]


def test_iterating_gives_the_rows():
    assert list(RECORD) == list(RECORD.rows)


@each([case for case in CASES if not case.name.startswith(("hf", "monai"))])
@pytest.mark.parametrize("method", [DeepEnsembles(members=2), BatchEnsemble(members=2)], ids=str)
def test_converted_layers_are_those_with_tensors_for_each_member(case, method):
    ensemble = pl.convert(case.model(), method)
    first = ensemble.members.tensors.first.named_parameters() if isinstance(method, BatchEnsemble) else ()
    own = {name for name, _ in (*ensemble.members.tensors.own.named_parameters(), *first)}
    model = case.model()
    parameters = {p: name for name, p in model.named_parameters()}
    for row in ensemble.conversion.rows:
        layer = model.get_submodule(row.names[0])
        whole = isinstance(layer, nn.MultiheadAttention) or hasattr(layer, "parametrizations")
        held = {parameters[p] for p in layer.parameters(recurse=whole)}
        assert bool(held & own) == (not row.reason), row


@pytest.mark.parametrize("method", [DeepEnsembles(members=2), BatchEnsemble(members=2)], ids=str)
def test_tied_layers_are_converted_together_or_not_at_all(method):
    x = case_named("tied_embedding").inputs()
    with pytest.raises(pl.ConversionError, match="tied layers must be converted together"):
        pl.convert(zoo.tied_embedding(), method, include="4", example=x)


def test_reasons_say_why_a_layer_was_left():
    model = zoo.frozen_trunk()
    ensemble = pl.convert(model, DeepEnsembles(members=2), exclude="3.1", overrides={"3.3": Single()})
    reasons = {row.names[0]: row.reason for row in ensemble.conversion.rows}
    assert reasons["0"] == "frozen"
    assert reasons["2"] == "no parameters"
    assert reasons["7"] == ""
    ensemble = pl.convert(
        zoo.residual_cnn(), DeepEnsembles(members=2), exclude="3.1", overrides={"3.3": Single()}
    )
    assert ensemble.conversion["3.1"].reason == "excluded"
    assert ensemble.conversion["3.3"].reason == "left by overrides"
    ensemble = pl.convert(zoo.residual_cnn(), DeepEnsembles(members=2), include="7")
    assert ensemble.conversion["0"].reason == "not included"


def test_the_title_names_method_and_network():
    ensemble = pl.convert(zoo.SharedModule(), Single())
    assert str(ensemble.conversion).startswith("Single() on SharedModule\n")
    assert [row.became for row in ensemble.conversion.rows] == ["left"] * 3


def test_dropout_is_recorded_with_its_rate_and_line():
    ensemble = pl.convert(zoo.FunctionalDropout(), MCDropout())
    row = ensemble.conversion[""]
    assert row.kind == "functional"
    assert row.became.startswith("dropout 0.2 kept on (")
    assert "zoo.py:" in row.became


def test_every_rate_of_one_layer_is_recorded():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            x = nn.functional.dropout(x, 0.2, self.training)
            return nn.functional.dropout(self.layer(x), 0.7, self.training)

    record = str(pl.convert(Twice(), MCDropout()).conversion)
    assert "dropout 0.2 and 0.7 kept on" in record
