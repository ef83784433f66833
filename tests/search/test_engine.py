"""The search as a whole: it ends with ensembles, goes on, and refuses what does not belong to it."""

import json

import pytest
import torch

from pluribus.comparison import record
from pluribus.errors import SettingError
from pluribus.methods import Single
from pluribus.search import engine, search
from pluribus.search.storage import StorageError
from tests.search.cases import moons, network, small_search, untrained


def test_search_ends_with_trained_ensembles_and_goes_on(tmp_path):
    study = small_search(tmp_path, trials=1)
    assert len(study.complete) == 1
    ensemble = study.best("parameters<=1x")
    assert ensemble.method == Single()
    assert ensemble.calibration is not None
    ensemble.save(tmp_path / "saved")
    assert ensemble.freeze().predict(moons().test.x[:3]).probabilities.shape == (3, 2)
    # The test data were looked at for the front alone.
    measured = {one.key for one in record.read([tmp_path])}
    assert measured == {trial.key for trial in study.front}
    assert (tmp_path / "taken" / "run.json").is_file()
    assert json.loads((tmp_path / "space.json").read_text())["deep_ensembles"] == {"members": [2, 3]}
    more = small_search(tmp_path, trials=2)
    assert len(more.complete) == 2
    assert more.complete[0].key == study.complete[0].key


@pytest.fixture
def light(monkeypatch):
    untrained(monkeypatch)


def test_other_space_on_the_same_study_is_refused(tmp_path, light):
    small_search(tmp_path, trials=1)
    with pytest.raises(SettingError, match="the space of a search must be that of its study"):
        small_search(tmp_path, trials=1, space={"single": {}, "deep_ensembles": {"members": [2]}})


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["gp", "mobo", "random"])
def test_flat_and_even_samplers_search_too(tmp_path, light, sampler):
    space = {"single": {}, "deep_ensembles": {"members": {"low": 2, "high": 30}}}
    study = small_search(tmp_path, trials=6, sampler=sampler, space=space)
    assert len(study.complete) == 6


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"objectives": "nlll"}, "objectives are"),
        ({"budget": "parameters<1x"}, "<="),
        ({"sampler": "bayes"}, "sampler"),
        ({"trials": 0}, "trials"),
        ({"space": None, "methods": ["sae"]}, "methods must be Methods"),
        ({"storage": "mysql://a"}, "heartbeat"),
        ({"space": None, "vary": ["widht"]}, "lr"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path, light, options, reason):
    with pytest.raises(SettingError, match=reason):
        small_search(tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_storage_that_is_down_is_an_error_of_one_line(tmp_path, light):
    with pytest.raises(StorageError, match="can be reached"):
        small_search(tmp_path, storage="postgresql://ann:secret@127.0.0.1:9/db")


def test_threads_are_set_and_restored():
    before = torch.get_num_threads()
    with engine.torch_threads(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_task_must_be_a_task():
    with pytest.raises(ValueError, match="task must be a Task"):
        search(network, None)
