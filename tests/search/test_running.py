"""Running a candidate: ensemble, record; a second time nothing is trained."""

import shutil

import pytest

from pluribus.comparison.run_folder import ENSEMBLE
from pluribus.methods import Single
from pluribus.search.running import adopt, final_record, load_ensemble, run_candidate, stored_record
from tests.search.cases import candidate


@pytest.fixture
def one(tmp_path):
    return candidate(tmp_path)


def run(one, epochs):
    return run_candidate(one, None, lambda ensemble, row: epochs.append(row["epoch"]), lambda: None)


def test_candidate_is_trained_once(one):
    epochs = []
    made = run(one, epochs)
    assert epochs == [1, 2]
    assert {"nll", "accuracy"} <= set(made.metrics)
    assert "scaled_nll" in made.posthoc
    assert run(one, epochs).key == made.key
    assert len(epochs) == 2
    loaded = load_ensemble(one)
    assert loaded.method == Single()
    assert loaded.calibration is not None


def test_record_without_its_ensemble_does_not_count(one):
    run(one, [])
    shutil.rmtree(one.folder / ENSEMBLE)
    assert stored_record(one) is None


def test_callback_may_end_the_run(one):
    with pytest.raises(ZeroDivisionError):
        run_candidate(one, None, lambda ensemble, row: 1 / 0, lambda: None)
    assert stored_record(one) is None


def test_test_data_are_looked_at_once(one):
    run(one, [])
    first = final_record(one, shifted=False)
    assert first.outcomes is not None
    assert final_record(one, shifted=False).outcomes is None
    assert first.metrics["nll"] != stored_record(one).metrics["nll"]


def test_run_of_another_folder_is_adopted(one, tmp_path):
    made = run(one, [])
    other = candidate(tmp_path / "other")
    assert adopt(other, one.folder).metrics == pytest.approx(made.metrics, nan_ok=True)
    assert stored_record(other) is not None
