"""Classes keep their names, and their probabilities are those of the mixture."""

import numpy as np
import pytest

from pluribus import Training
from pluribus.errors import InputError
from pluribus.sklearn import EnsembleClassifier

FAST = {"hidden": (8,), "method": "deep_ensembles(members=2)", "training": Training(steps=20, lr=0.1)}


@pytest.fixture(scope="module")
def fitted():
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.array(["low", "mid", "top"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    return EnsembleClassifier(**FAST, random_state=0).fit(X, y), X, y


def test_predict_names_the_most_probable_class(fitted):
    model, X, y = fitted
    assert list(model.classes_) == ["low", "mid", "top"]
    assert list(model.predict(X)) == list(model.classes_[model.predict_proba(X).argmax(1)])
    assert model.score(X, y) > 0.7


def test_predict_proba_averages_the_members(fitted):
    model, X, _ = fitted
    members = model.predict_full(X).member_probabilities.numpy()
    np.testing.assert_allclose(model.predict_proba(X), members.mean(0), rtol=1e-9)


def test_classes_without_weight_are_no_classes(fitted):
    _, X, y = fitted
    model = EnsembleClassifier(**FAST).fit(X, y, (y != "mid").astype(float))
    assert list(model.classes_) == ["low", "top"]
    with pytest.raises(InputError, match="one class, 'mid'"):
        EnsembleClassifier(**FAST).fit(X, y, (y == "mid").astype(float))
