"""Records: one line each, never torn, the last of each key counts."""

import errno
import math
import os
from dataclasses import replace

import numpy as np
import pytest

from pluribus import CheckpointError
from pluribus.comparison.outcomes import Outcomes
from pluribus.comparison.record import FILE, OUTCOMES, Record, append, damaged_lines, key_of, read
from pluribus.errors import WriteError


def one(key: str = "a", **changes) -> Record:
    return Record(key, {"kind": "single"}, "digits", "cnn", 0, {}, **changes)


def test_a_record_comes_back_equal(tmp_path):
    append(tmp_path, one(metrics={"nll": 0.25}, ood={"svhn": {"auroc_entropy": 0.9}}))
    assert read([tmp_path]) == [one(metrics={"nll": 0.25}, ood={"svhn": {"auroc_entropy": 0.9}})]


def test_numbers_that_are_not_finite_are_null_and_come_back_as_nan(tmp_path):
    lost = {
        "metrics": {"nll": math.inf},
        "ood": {"svhn": {"auroc": math.nan}},
        "shifted": {"fog/1": {"nll": math.inf}},
    }
    append(tmp_path, one(**lost))
    assert "null" in (tmp_path / FILE).read_text()
    (found,) = read([tmp_path])
    assert math.isnan(found.metrics["nll"])
    assert math.isnan(found.ood["svhn"]["auroc"])
    assert math.isnan(found.shifted["fog/1"]["nll"])


def test_the_history_of_training_comes_back(tmp_path):
    append(tmp_path, one(history={"epoch": [1, 2], "loss": [0.5, math.inf]}))
    (found,) = read([tmp_path])
    assert found.history["epoch"] == [1, 2]
    assert found.history["loss"][0] == 0.5
    assert math.isnan(found.history["loss"][1])


def test_a_torn_line_is_left_out_and_does_not_spoil_the_next(tmp_path):
    append(tmp_path, one("a"))
    with (tmp_path / FILE).open("a") as file:
        file.write(one("b").to_json()[:40])  # killed in the middle of a line
    append(tmp_path, one("c"))
    assert [record.key for record in read([tmp_path])] == ["a", "c"]


def test_the_last_record_of_a_key_counts(tmp_path):
    append(tmp_path, one(error="failed"))
    append(tmp_path, one(metrics={"nll": 1.0}))
    assert [record.error for record in read([tmp_path])] == [""]


def test_a_failure_does_not_replace_what_succeeded_elsewhere(tmp_path):
    append(tmp_path / "here", one(metrics={"nll": 1.0}))
    append(tmp_path / "there", one(error="failed"))
    for folders in (("here", "there"), ("there", "here")):
        (found,) = read([tmp_path / folder for folder in folders])
        assert (found.error, found.metrics) == ("", {"nll": 1.0})


def test_outcomes_lie_beside_the_records_and_are_read_when_asked_for(tmp_path):
    append(tmp_path, replace(one(), outcomes=Outcomes({"nll": np.array([0.5, 2.0])}, {})))
    assert "outcomes" not in (tmp_path / FILE).read_text()
    assert read([tmp_path])[0].outcomes is None
    assert read([tmp_path], outcomes=True)[0].outcomes.columns["nll"].tolist() == [0.5, 2.0]


def test_missing_and_damaged_outcomes_leave_the_record(tmp_path):
    append(tmp_path, one("a"))
    append(tmp_path, replace(one("b"), outcomes=Outcomes({}, {})))
    (tmp_path / OUTCOMES / "b.npz").write_bytes(b"torn")
    assert [(run.key, run.outcomes) for run in read([tmp_path], outcomes=True)] == [("a", None), ("b", None)]


def test_keys_follow_from_settings_alone():
    settings = ({"a": 1, "b": 2}, "task", "network", 0, {"epochs": 3}, True, "", "digest")
    other = [{"a": 1, "b": 3}, "tasks", "networks", 1, {"epochs": 4}, False, "data", "another"]
    changed = [(*settings[:place], one, *settings[place + 1 :]) for place, one in enumerate(other)]
    assert key_of(*settings) == key_of({"b": 2, "a": 1}, *settings[1:])
    assert len({key_of(*settings), *(key_of(*one) for one in changed)}) == 9


def test_a_folder_without_records_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=FILE):
        read([tmp_path])


DAMAGED = {
    "no UTF-8": (b"\xff\xfe", "expected UTF-8"),
    "no object": (b"[1, 2]", "must be an object"),
    "a number": (b"3", "must be an object"),
    "deep nesting": (b"[" * 100_000, "nested brackets"),
    "a field of another type": (
        one("b").to_json().replace('"seed": 0', '"seed": "a"').encode(),
        "field seed",
    ),
    "metrics of another type": (
        one("b").to_json().replace('"metrics": {}', '"metrics": [1]').encode(),
        "metrics",
    ),
    "a method without a kind": (one("b").to_json().replace('"kind"', '"kin"').encode(), "field method.kind"),
    "a key that is a path": (one("../b").to_json().encode(), "field key must be letters and digits"),
    "an unknown field": (one("b").to_json().replace('"seed"', '"sed"').encode(), "field seed is missing"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_line_costs_one_run_and_is_named(name, tmp_path):
    raw, says = DAMAGED[name]
    append(tmp_path, one("a"))
    with (tmp_path / FILE).open("ab") as file:
        file.write(raw + b"\n")
    append(tmp_path, one("c"))
    assert [record.key for record in read([tmp_path])] == ["a", "c"]
    (sentence,) = damaged_lines([tmp_path])
    assert f"{FILE}, line 2 is damaged or foreign: " in sentence
    assert says in sentence


def test_a_full_disk_is_an_error_of_ours(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    append(tmp_path, one("a"))
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WriteError, match=r"No space left on device. Free some space"):
        append(tmp_path, one("b"))
    monkeypatch.undo()
    assert [record.key for record in read([tmp_path])] == ["a"]


@pytest.mark.parametrize("kind", ["../../elsewhere", "a/b", "..", "a\\b", "", "a\n"])
def test_a_method_whose_folder_would_lie_elsewhere_is_refused(tmp_path, kind):
    append(tmp_path, replace(one("a"), method={"kind": kind}))
    append(tmp_path, one("b"))
    assert [found.key for found in read([tmp_path])] == ["b"]
    (reason,) = damaged_lines([tmp_path])
    assert "line 1" in reason
    assert "method.kind must be the name of a method" in reason
