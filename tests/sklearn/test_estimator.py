"""Both estimators keep scikit-learn's contract: clones, searches, pickles, weights, tables."""

import pickle
import warnings

import numpy as np
import pandas
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from torch import nn

from pluribus import Training
from pluribus.errors import InputError, SettingError
from pluribus.methods import DeepEnsembles
from pluribus.sklearn import EnsembleClassifier, EnsembleRegressor

FAST = {
    "hidden": (8,),
    "method": "deep_ensembles(members=2)",
    "training": Training(steps=20, lr=0.1),
    "random_state": 0,
}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    city = rng.choice(["Bonn", "Rome", "Oslo"], 90)
    age = rng.normal(40, 10, 90)
    frame = pandas.DataFrame({"age": age, "city": pandas.Categorical(city), "member": rng.random(90) > 0.5})
    return frame, np.where(city == "Rome", "yes", "no")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = np.where(X[:, 0] > 0, "b", "a")
    return EnsembleClassifier(**FAST, calibrated=True).fit(X, y), X, y


@pytest.mark.parametrize("kind", [EnsembleClassifier, EnsembleRegressor])
def test_estimator_passes_the_checks_of_scikit_learn(kind):
    with warnings.catch_warnings():
        # One check needs an environment variable, and tells that it is skipped.
        warnings.simplefilter("ignore")
        found = check_estimator(kind(**FAST), on_fail=None)
    failed = {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}
    assert failed == {}
    assert sum(one["status"] == "passed" for one in found) > 50


def test_settings_of_the_method_are_parameters():
    model = EnsembleClassifier(**FAST)
    assert model.get_params()["method__members"] == 2
    model.set_params(method__members=3, training__lr=0.5)
    assert model.method == DeepEnsembles(members=3)
    assert model.training == Training(steps=20, lr=0.5)
    assert clone(model).get_params() == model.get_params()


def test_search_finds_the_best_number_of_members(fitted):
    _, X, y = fitted
    grid = {"ensembleclassifier__method__members": [1, 2]}
    pipeline = make_pipeline(StandardScaler(), EnsembleClassifier(**FAST))
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert [len(search.best_estimator_[-1].ensemble_.weights)] == list(search.best_params_.values())
    assert search.best_score_ > 0.7


def test_pickle_predicts_the_same(fitted):
    model, X, _ = fitted
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    torch.testing.assert_close(again.predict_full(X).sets, model.predict_full(X).sets)


def test_fit_leaves_the_generator_of_torch_as_it_was(fitted):
    _, X, y = fitted
    before = torch.get_rng_state()
    EnsembleClassifier(**FAST).fit(X, y)
    assert torch.equal(torch.get_rng_state(), before)


def test_weights_of_two_are_samples_given_twice():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    weights = rng.integers(0, 3, 20)
    weighted = EnsembleRegressor(**FAST).fit(X, y, weights).predict(X)
    repeated = EnsembleRegressor(**FAST).fit(X.repeat(weights, 0), y.repeat(weights)).predict(X)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-6)


def test_calibrated_estimator_has_sets_and_flags(fitted):
    model, X, y = fitted
    prediction = model.predict_full(X)
    truth = torch.from_numpy(np.searchsorted(model.classes_, y))
    assert prediction.sets[torch.arange(len(y)), truth].float().mean() > 0.8
    assert prediction.flagged.float().mean() < 0.3
    with pytest.raises(InputError, match="class 'z'"):
        model.calibrate(X, np.repeat("z", len(X)))


def test_calibrate_takes_other_data(fitted):
    _, X, y = fitted
    model = EnsembleClassifier(**FAST).fit(X, y)
    assert model.ensemble_.calibration is None
    assert model.calibrate(X, y, level=0.8).ensemble_.calibration.level == 0.8


def test_table_with_words_is_read_by_its_columns(table):
    frame, y = table
    model = EnsembleClassifier(**FAST).fit(frame, y)
    assert model.columns_.features == ("age", "city=Bonn", "city=Oslo", "city=Rome", "member")
    assert list(model.feature_names_in_) == ["age", "city", "member"]
    assert model.n_features_in_ == 3
    assert model.score(frame, y) > 0.9
    blank = frame.assign(age=np.nan, city=pandas.Categorical(["Rome"] * 90))
    assert (model.predict(blank) == "yes").mean() > 0.9
    with pytest.raises(InputError, match="must be a DataFrame"):
        model.predict(frame.to_numpy())
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"city": "town"}))


def test_table_of_numbers_equals_its_array(table):
    frame, y = table
    frame = frame.assign(city=frame["city"].cat.codes)
    by_frame = EnsembleClassifier(**FAST).fit(frame, y).predict_proba(frame)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array = frame.to_numpy(dtype=float)
        by_array = EnsembleClassifier(**FAST).fit(array, y).predict_proba(array)
    np.testing.assert_array_equal(by_frame, by_array)


def test_columns_may_be_encoded_by_scikit_learn(table):
    frame, y = table
    words = make_column_selector(dtype_include=["category", "string", object])
    encoder = ColumnTransformer([("words", OneHotEncoder(), words)], remainder="passthrough")
    assert make_pipeline(encoder, EnsembleClassifier(**FAST)).fit(frame, y).score(frame, y) > 0.9


def test_module_may_be_a_network_or_a_factory(fitted):
    _, X, y = fitted

    def build(inputs, outputs):
        return nn.Sequential(nn.Linear(inputs, 6), nn.Tanh(), nn.Linear(6, outputs))

    for module in (build, build(3, 2)):
        model = EnsembleClassifier(module, **FAST).fit(X, y)
        assert model.ensemble_.network_name == "Sequential"
        assert model.score(X, y) > 0.8
    images = X.reshape(80, 3, 1, 1).repeat(2, 2).repeat(2, 3)
    convolution = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(4, 2))
    assert EnsembleClassifier(convolution, **FAST).fit(images, y).score(images, y) > 0.8


def test_float32_trains_and_predicts(fitted):
    _, X, y = fitted
    model = EnsembleClassifier(**FAST, dtype="float32").fit(X, y)
    assert next(model.ensemble_.parameters()).dtype == torch.float32
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1, rtol=1e-12)


@pytest.mark.slow
def test_export_writes_a_file_with_the_scaling(fitted, tmp_path):
    pytest.importorskip("onnxruntime")
    model, *_ = fitted
    path = model.export(tmp_path / "model.onnx")
    assert path.is_file()
    assert next(model.ensemble_.parameters()).dtype == torch.float64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "deep"}, "methods are"),
        ({"training": 3}, "training must be a Training"),
        ({"module": 3}, "module must be an nn.Module"),
        ({"dtype": "half"}, "dtype must be"),
        ({"calibrated": True, "validation_fraction": 0.0}, "validation_fraction must be above 0"),
        ({"validation_fraction": 2.0}, "validation_fraction must be"),
    ],
)
def test_fit_refuses_parameters_with_a_reason(fitted, changes, message):
    _, X, y = fitted
    with pytest.raises(SettingError, match=message):
        EnsembleClassifier(**FAST | changes).fit(X, y)


def test_estimator_must_be_fitted_first():
    for call in ("predict", "predict_proba", "predict_full"):
        with pytest.raises(NotFittedError):
            getattr(EnsembleClassifier(), call)([[1.0]])
