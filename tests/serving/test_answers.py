"""Answers: names of classes, units of targets, sets, dense predictions."""

import numpy as np

from pluribus.serving.answers import Answers, is_dense, sample_means
from pluribus.serving.preprocessing import Scale

SET = np.array([[True, False, True]])
CLASSES = {
    "probabilities": np.array([[0.5, 0.1, 0.4]]),
    "labels": np.array([0]),
    "confidence": np.array([0.5]),
    "entropy": np.array([0.9]),
    "mutual_information": np.array([0.1]),
    "set": SET,
    "ood_score": np.array([3.0]),
    "flagged": np.array([True]),
    "members": np.zeros((4, 1, 3)),
}


def test_an_answer_has_names_and_all_kinds_of_uncertainty():
    answers = Answers({"classes": ["a", "b", "c"], "level": 0.9}, None)
    (found,) = answers.make(CLASSES, ["unseen pet=x"])
    assert found["label"] == "a"
    assert found["probabilities"] == {"a": 0.5, "b": 0.1, "c": 0.4}
    assert found["set"] == ["a", "c"]
    assert (found["level"], found["flagged"], found["note"]) == (0.9, True, "unseen pet=x")
    assert (found["confidence"], found["entropy"], found["mutual_information"]) == (0.5, 0.9, 0.1)
    assert "members" not in found


def test_classes_without_names_are_numbers():
    (found,) = Answers({"classes": 3, "level": 0.9}, None).make(CLASSES, [""])
    assert (found["label"], found["probabilities"], found["set"]) == (0, [0.5, 0.1, 0.4], [0, 2])
    assert "note" not in found


def test_numbers_are_in_the_units_of_the_data():
    outputs = {name: np.array([[1.0]]) for name in ("mean", "variance", "epistemic")}
    outputs |= {"lower": np.array([[-np.inf]]), "upper": np.array([[2.0]])}
    target = Scale(np.array([100.0]), np.array([10.0]))
    (found,) = Answers({"level": 0.8}, target).make(outputs, [""])
    assert (found["mean"], found["variance"], found["epistemic"], found["std"]) == (110, 100, 100, 10)
    # JSON has no infinity.
    assert (found["lower"], found["upper"], found["level"]) == (None, 120, 0.8)


def test_several_labels_have_a_set_each():
    outputs = {
        "probabilities": np.array([[0.9, 0.5]]),
        "labels": np.array([[1, 0]]),
        "set": np.array([[[False, True], [True, True]]]),
    }
    assert not is_dense(outputs)
    (found,) = Answers({"classes": None, "level": 0.9}, None).make(outputs, [""])
    assert (found["label"], found["set"]) == ([1, 0], [[1], [0, 1]])


def test_dense_predictions_are_labels_and_means():
    outputs = {
        "probabilities": np.full((1, 2, 3), 0.5),
        "labels": np.array([[0, 1, 1]]),
        "entropy": np.array([[0.0, 1.0, 2.0]]),
        "flagged": np.array([False]),
    }
    assert is_dense(outputs)
    (found,) = Answers({"classes": ["a", "b"]}, None).make(outputs, [""])
    assert found == {"label": [0, 1, 1], "mean_entropy": 1.0, "flagged": False}
    assert is_dense({"mean": np.zeros((1, 1, 4))})
    assert sample_means(np.array([[1.0, 3.0]])).tolist() == [2.0]
