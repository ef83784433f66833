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
from pluribus.ranges import show
from pluribus.settings import Settings, setting, snake_case

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

counts, rates, scales = st.integers(1, 10**4), st.floats(0, 1, exclude_max=True), st.floats(0, 1e6)
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
    own = {name for name, one in Method.known().items() if one.__module__.startswith("pluribus.")}
    assert not own & set(Likelihood.known())


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
        ("LoRAEnsembles", "lora_ensembles"),
        ("DeepVNN", "deep_vnn"),
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
    message = rf"{type(value).__name__} reads settings of version 1 to {latest}, got version {version!r}"
    with pytest.raises(SettingError, match=message.replace(".", r"\.")):
        parent(value).from_dict(written)


def test_a_missing_version_is_refused():
    with pytest.raises(SettingError, match="got version None"):
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
    with pytest.raises(SettingError, match=rf"kind must be one of .*batch_ensemble, .*got {kind!r}\.{hint}"):
        Method.from_dict({"kind": kind, "version": 1})


@pytest.mark.parametrize("kind", [["single"], {"single": 1}])
def test_a_kind_that_is_no_word_is_refused(kind):
    with pytest.raises(SettingError, match="kind must be one of"):
        Method.from_dict({"kind": kind, "version": 1})


def test_settings_of_another_kind_are_refused_by_a_final_class():
    with pytest.raises(SettingError, match="kind must be one of single, got 'mc_dropout'"):
        Single.from_dict(MCDropout().to_dict())


def test_an_unknown_setting_is_refused_with_the_nearest_name():
    written = {**DeepEnsembles().to_dict(), "member": 3}
    known = "members, prior_scale, start, reduction, settle_prior, shuffle_members"
    message = rf"are {known}, got 'member'\. Did you mean 'members'\?"
    with pytest.raises(SettingError, match=message):
        Method.from_dict(written)
    with pytest.raises(SettingError, match=r"settings of Single are none, got 'xyz'\.$"):
        Method.from_dict({**Single().to_dict(), "xyz": 3})


def test_a_setting_whose_name_is_no_word_is_refused():
    with pytest.raises(SettingError, match="settings of Single are none, got 3"):
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
    with pytest.raises(SettingError, match=rf"^{name} must be .*, got {value!r}\."):
        kind(**{name: value})


ABSURD = [
    (PackedEnsembles, "alpha", 1e9, "at most 1000"),
    (PackedEnsembles, "members", 10**400, "at most 10000, got a number of 1329 bits"),
    (DeepEnsembles, "members", 10**6, "at most 10000"),
    (DeepEnsembles, "prior_scale", 1e300, "at most 1000000"),
    (MCDropout, "draws", 10**9, "at most 1000000"),
    (Gaussian, "precision", 10**400, "at most 1.7.*e\\+308"),
    (Gaussian, "precision", 10**5000, "at most .*, got a number of 16610 bits"),
]


@pytest.mark.parametrize(
    ("kind", "name", "value", "expected"), ABSURD, ids=[str(i) for i in range(len(ABSURD))]
)
def test_absurd_values_are_refused_in_one_line(kind, name, value, expected):
    with pytest.raises(SettingError, match=rf"^{name} must be {expected}") as caught:
        kind(**{name: value})
    assert len(str(caught.value)) < 200


def test_a_remedy_is_given_where_a_value_is_too_small():
    with pytest.raises(SettingError) as caught:
        DeepEnsembles(members=0)
    assert str(caught.value) == "members must be at least 1, got 0. Use members=1 for a single network."
    with pytest.raises(SettingError, match=r"^members must be at most 10000, got 10001\.$"):
        DeepEnsembles(members=10_001)


def test_a_declared_field_without_a_default_value_is_optional():
    @dataclasses.dataclass(frozen=True)
    class Clipped(Settings):
        clip: float | None = setting(None, kind=float, above=0)

    assert Clipped().clip is None
    assert Clipped(2).clip == 2
    with pytest.raises(SettingError, match=r"clip must be above 0, got 0\."):
        Clipped(0)


def test_long_values_are_cut_in_errors():
    assert show("a" * 1000) == "'" + "a" * 79 + "…"
    assert show([10**5000]) == "a list of 1"
    assert show(10**5000) == "a number of 16610 bits"


@pytest.mark.parametrize("digits", [10, 400, 5000])
def test_counts_beyond_reason_are_refused_at_once(digits):
    with pytest.raises(SettingError, match="members must be at most 10000, got "):
        DeepEnsembles(members=10**digits)
    with pytest.raises(SettingError, match=r"alpha must be at most 1000, got 1000000000\.0"):
        PackedEnsembles(alpha=1e9)


@pytest.mark.parametrize("values", ["x", 3, None, ["kind"]], ids=str)
def test_settings_that_are_no_object_are_refused(values):
    with pytest.raises(SettingError, match="settings must be an object with a kind and a version"):
        Likelihood.from_dict(values)
