"""Running a candidate: ensemble, record; a second time nothing is trained."""

import shutil

import pytest

from pluribus.comparison.run_folder import ENSEMBLE
from pluribus.methods import Single
from pluribus.search.running import adopt, final_record, load_ensemble, run_candidate, stored_record
from tests.search.cases import candidate


def run(one, epochs):
    return run_candidate(one, None, lambda ensemble, row: epochs.append(row["epoch"]), lambda: None)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a candidate that was run, its record, and the epochs that were trained."""
    one = candidate(tmp_path_factory.mktemp("search"))
    epochs = []
    return one, run(one, epochs), epochs


def test_candidate_is_trained_once(trained):
    one, made, epochs = trained
    assert {"nll", "accuracy"} <= set(made.metrics)
    assert "scaled_nll" in made.posthoc
    before = list(epochs)
    assert before == [1, 2]
    assert run(one, epochs).key == made.key
    assert epochs == before
    loaded = load_ensemble(one)
    assert loaded.method == Single()
    assert loaded.calibration is not None


def test_callback_may_end_the_run(tmp_path):
    one = candidate(tmp_path)
    with pytest.raises(ZeroDivisionError):
        run_candidate(one, None, lambda ensemble, row: 1 / 0, lambda: None)
    assert stored_record(one) is None


def test_test_data_are_looked_at_once(trained):
    one, made, _ = trained
    first = final_record(one, shifted=False)
    assert first.outcomes is not None
    assert final_record(one, shifted=False).outcomes is None
    assert first.metrics["nll"] != made.metrics["nll"]


def test_run_of_another_folder_is_adopted_and_record_without_ensemble_does_not_count(trained, tmp_path):
    one, made, _ = trained
    other = candidate(tmp_path)
    assert adopt(other, one.folder).metrics == pytest.approx(made.metrics, nan_ok=True)
    assert stored_record(other) is not None
    shutil.rmtree(other.folder / ENSEMBLE)
    assert stored_record(other) is None
