"""Settings: values that go to and from plain dicts, and refuse what they cannot mean."""

import dataclasses
import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pluribus import Bernoulli, Categorical, Gaussian, Likelihood, Method, Point, SettingError
from pluribus.methods import (
    BatchEnsemble,
    DeepEnsembles,
    DeepSubEnsembles,
    LayerEnsembles,
    Masksembles,
    MCDropout,
    PackedEnsembles,
    Single,
)
from pluribus.settings import nearest, number, one_of, positive, snake_case, whole

VALUES = [
    Single(),
    DeepEnsembles(),
    DeepEnsembles(members=7, prior_scale=0.25, start="copy"),
    BatchEnsemble(),
    BatchEnsemble(members=2, std=0.0, repeat=True),
    MCDropout(),
    MCDropout(rate=0.0, draws=3, train_draws=2, insert=False),
    MCDropout(insert=True),
    Masksembles(scale=math.inf, from_layer="layer3", align=1),
    LayerEnsembles(options=2, prior_scale=0.0, draws=7),
    DeepSubEnsembles(trunk=("stem", "layer*")),
    Categorical(),
    Bernoulli(),
    Gaussian(),
    Gaussian(precision=2.5),
    Point(),
]
each_value = pytest.mark.parametrize("value", VALUES, ids=str)

counts, rates, scales = st.integers(1, 10**6), st.floats(0, 1, exclude_max=True), st.floats(0, 1e300)
methods = st.one_of(
    st.just(Single()),
    st.builds(DeepEnsembles, counts, scales, st.sampled_from(["fresh", "copy"])),
    st.builds(BatchEnsemble, counts, scales, st.booleans()),
    st.builds(MCDropout, rates, counts, counts, st.sampled_from([None, True, False])),
)


def parent(value):
    return Method if isinstance(value, Method) else Likelihood


@each_value
def test_a_value_survives_json(value):
    read = json.loads(json.dumps(value.to_dict(), allow_nan=False))
    assert parent(value).from_dict(read) == value == type(value).from_dict(read)


@settings(deadline=None)
@given(methods)
def test_every_method_survives_json(method):
    assert Method.from_dict(json.loads(json.dumps(method.to_dict()))) == method


@each_value
def test_a_dict_says_kind_version_and_every_setting(value):
    written = value.to_dict()
    names = [field.name for field in dataclasses.fields(value)]
    assert list(written) == ["kind", "version", *names]
    assert written["kind"] == snake_case(type(value).__name__)
    assert written["version"] == type(value).version


@each_value
def test_values_are_frozen_and_hashable_and_print_themselves(value):
    assert len({value, type(value).from_dict(value.to_dict())}) == 1
    assert eval(repr(value), {**globals(), "inf": math.inf}) == value
    for field in dataclasses.fields(value):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field.name, 3)


def test_all_kinds_are_known_by_their_class_names():
    assert set(Method.known().values()) >= {Single, DeepEnsembles, BatchEnsemble, MCDropout}
    assert set(Likelihood.known()) == {"categorical", "bernoulli", "gaussian", "point"}
    assert not set(Method.known()) & set(Likelihood.known())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BatchEnsemble", "batch_ensemble"),
        ("MCDropout", "mc_dropout"),
        ("SAE", "sae"),
        ("ECMP", "ecmp"),
        ("MIMO", "mimo"),
        ("BayesByBackprop", "bayes_by_backprop"),
        ("DeepSubEnsembles", "deep_sub_ensembles"),
        ("VNN", "vnn"),
    ],
)
def test_snake_case_keeps_acronyms_together(name, expected):
    assert snake_case(name) == expected


def test_settings_that_are_not_given_have_their_defaults():
    assert Method.from_dict({"kind": "mc_dropout", "version": 1}) == MCDropout()


@each_value
@pytest.mark.parametrize("version", [9, 99, 0, -1, None, True, "1", 1.0])
def test_other_versions_are_refused(value, version):
    written = {**value.to_dict(), "version": version}
    latest = type(value).version
    message = rf"{type(value).__name__} reads settings of version 1 to {latest}, however: version={version!r}"
    with pytest.raises(SettingError, match=message.replace(".", r"\.")):
        parent(value).from_dict(written)


def test_a_missing_version_is_refused():
    with pytest.raises(SettingError, match="version=None"):
        Method.from_dict({"kind": "single"})


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("deep_ensemble", r" Did you mean 'deep_ensembles'\?"),
        ("MCDropout", ""),
        ("categorical", ""),
        (None, ""),
        (3, ""),
    ],
)
def test_a_wrong_kind_is_refused_with_the_nearest_name(kind, hint):
    with pytest.raises(SettingError, match=rf"kind must be one of batch_ensemble, .*kind={kind!r}\.{hint}"):
        Method.from_dict({"kind": kind, "version": 1})


@pytest.mark.parametrize("kind", [["single"], {"single": 1}])
def test_a_kind_that_is_no_word_is_refused(kind):
    with pytest.raises(SettingError, match="kind must be one of"):
        Method.from_dict({"kind": kind, "version": 1})


def test_settings_of_another_kind_are_refused_by_a_final_class():
    with pytest.raises(SettingError, match="kind must be one of single, however: kind='mc_dropout'"):
        Single.from_dict(MCDropout().to_dict())


def test_an_unknown_setting_is_refused_with_the_nearest_name():
    written = {**DeepEnsembles().to_dict(), "member": 3}
    message = r"are members, prior_scale, start, reduction, settle_prior, however: 'member'\. Did you mean 'members'\?"
    with pytest.raises(SettingError, match=message):
        Method.from_dict(written)
    with pytest.raises(SettingError, match=r"settings of Single are none, however: 'xyz'\.$"):
        Method.from_dict({**Single().to_dict(), "xyz": 3})


def test_a_setting_whose_name_is_no_word_is_refused():
    with pytest.raises(SettingError, match="settings of Single are none, however: 3"):
        Method.from_dict({**Single().to_dict(), 3: 4})


IMPOSSIBLE = [
    (DeepEnsembles, "members", [0, -1, True, 2.0, "4", None, math.nan]),
    (DeepEnsembles, "prior_scale", [-0.1, math.nan, math.inf, True, "1", None]),
    (DeepEnsembles, "start", ["Fresh", None, 3]),
    (BatchEnsemble, "members", [0, False]),
    (BatchEnsemble, "std", [-1e-9, math.nan, -math.inf, False]),
    (BatchEnsemble, "repeat", [1, "no", None]),
    (MCDropout, "rate", [1.0, 1, -0.1, math.nan, True, "0.1"]),
    (MCDropout, "draws", [0, True, 1.5]),
    (MCDropout, "train_draws", [0, True]),
    (MCDropout, "insert", [0, 1, "yes"]),
    (Gaussian, "precision", [0, -1, math.nan, math.inf, True, "1"]),
]


@pytest.mark.parametrize(
    ("kind", "name", "value"), [(kind, name, value) for kind, name, values in IMPOSSIBLE for value in values]
)
def test_an_impossible_value_is_refused_by_name(kind, name, value):
    with pytest.raises(SettingError, match=rf"^{name} must be .*, however: {name}={value!r}\.$"):
        kind(**{name: value})


@pytest.mark.parametrize("value", [10**400, -(10**400)], ids=["above", "below"])
def test_a_number_beyond_floats_is_refused(value):
    with pytest.raises(SettingError, match="std must be a number, at least 0"):
        number("std", value, least=0)


def test_refusals_say_the_range():
    with pytest.raises(
        SettingError, match=r"rate must be a number, at least 0 and below 1, however: rate=3\."
    ):
        number("rate", 3, least=0, below=1)
    with pytest.raises(SettingError, match=r"x must be a number, however: x='a'\."):
        number("x", "a")
    with pytest.raises(SettingError, match=r"x must be a number above 0, however: x=0\."):
        positive("x", 0)
    with pytest.raises(SettingError, match=r"n must be a whole number, at least 2, however: n=1\."):
        whole("n", 1, least=2)
    with pytest.raises(SettingError, match=r"c must be one of 'a', 3, however: c='b'\."):
        one_of("c", "b", ("a", 3))


def test_the_nearest_word_is_a_hint_or_nothing():
    assert nearest("membres", ["members", "rate"]) == " Did you mean 'members'?"
    assert nearest("zzz", ["members", "rate"]) == ""
    assert nearest("EMP", ["ecmp", "emp"]) == " Did you mean 'emp'?"
    assert nearest("sae", ["SAE"]) == " Did you mean 'SAE'?"


@pytest.mark.parametrize("digits", [10, 400, 5000])
def test_counts_beyond_reason_are_refused_at_once(digits):
    with pytest.raises(SettingError, match="members must be a whole number, at least 1 and at most 1000000"):
        DeepEnsembles(members=10**digits)
    with pytest.raises(SettingError, match="alpha must be a number, below 1000"):
        PackedEnsembles(alpha=1e9)
