"""Methods are read from text, the same on the command line and in Python."""

import math

import pytest
import torch

import pluribus as pl
from pluribus.method_text import parse_options, read_method, read_methods
from pluribus.methods import EMP, SAE, DeepEnsembles, Masksembles, MCDropout, Single


def test_methods_are_read_with_their_settings():
    assert read_methods("single,deep_ensembles(members=5, start=copy), mc_dropout") == [
        Single(),
        DeepEnsembles(members=5, start="copy"),
        MCDropout(),
    ]
    assert read_methods("masksembles(scale=inf)") == [Masksembles(scale=math.inf)]
    assert read_methods("sae(alpha=(0, 0.1), where=['1', '2'], inputs=3), single") == [
        SAE(inputs=3, alpha=(0, 0.1), where=("1", "2")),
        Single(),
    ]
    for brackets in ("(norm, output)", "[norm,output]", "('norm', 'output')"):
        assert read_methods(f"emp(where={brackets}, options=3)") == [EMP(3, ("norm", "output"))]
    for word in ("norm", "[02]", "[02]*.[01]", "(a)", "(a) b (c)"):
        assert read_methods(f"emp(where={word})") == [EMP(where=word)]
    assert read_methods("emp(where=([ab], norm)), emp(where='a)')") == [
        EMP(where=("[ab]", "norm")),
        EMP(where="a)"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("masksembels_typo,single", "methods are .*, got 'masksembels_typo'"),
        ("deep_ensemble", "Did you mean 'deep_ensembles'"),
        ("EMP", "Did you mean 'emp'"),
        ("MCDropout", "Did you mean 'mc_dropout'"),
        ("deep_ensembles(member=5)", "Did you mean 'members'"),
        ("deep_ensembles(members=0)", "members must be at least 1"),
        ("deep_ensembles(members)", "written name=value"),
        ("emp(options=3, options=4)", "settings are given once, got options twice"),
        ("emp(options=3", r"every bracket must be opened and closed, got 'emp\(options=3'"),
        ("emp(options=3))", "every bracket must be opened and closed"),
        ("emp(options=3)x", r"methods are written name\(setting=value, …\), got 'emp\(options=3\)x'"),
        (" ", "methods must name at least one"),
    ],
)
def test_wrong_methods_are_refused_with_the_nearest(text, message):
    with pytest.raises(pl.SettingError, match=message):
        read_methods(text)


@pytest.mark.parametrize("column", ["[USD]", "(x) y (z)", "a=b", r"C:\data\new", "per [day, night"])
def test_options_may_be_words_with_brackets(column):
    assert parse_options([f"target={column}"]) == {"target": column}


def test_one_method_is_one():
    assert read_method("emp(options=2)") == EMP(2)
    with pytest.raises(pl.SettingError, match="method must be one, got 'emp, ecmp' with 2"):
        read_method("emp, ecmp")


def test_convert_takes_text():
    network = torch.nn.Linear(3, 2)
    ensemble = pl.convert(network, "deep_ensembles(members=3)")
    assert ensemble.method == DeepEnsembles(members=3)
    with pytest.raises(pl.SettingError, match="Did you mean 'deep_ensembles'"):
        pl.convert(network, "deep_ensemble")
