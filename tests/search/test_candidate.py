"""Candidates: keys, folders, trainings and sizes of the network."""

from dataclasses import replace

import pytest

from pluribus.backbones import residual_mlp
from pluribus.comparison.comparison import Job
from pluribus.errors import SettingError
from pluribus.fingerprint import digest
from pluribus.methods import SAE, DeepEnsembles, Single
from pluribus.search.candidate import Candidate
from pluribus.search.running import final_record, run_candidate
from pluribus.search.space import Configuration
from pluribus.training import Hardware, Training
from tests.search.cases import candidate, network, problem


def test_equal_configurations_have_equal_keys(tmp_path):
    one, same = (
        candidate(tmp_path, DeepEnsembles(members=2)),
        candidate(tmp_path / "b", DeepEnsembles(members=2)),
    )
    other = candidate(tmp_path, DeepEnsembles(members=3))
    wide = candidate(tmp_path, DeepEnsembles(members=2), sizes={"width": 8})
    assert one.key == same.key
    assert len({one.key, other.key, wide.key}) == 3
    assert one.folder.name.startswith("deep_ensembles-0-")


def test_key_is_that_of_a_comparison(tmp_path):
    ours = problem(tmp_path)
    job = Job(network, ours.task, Single(), 0, Training(steps=2), "network", tmp_path, digest=ours.digest)
    assert candidate(tmp_path).key_in_comparison(shifted=True) == job.key


def test_key_of_a_precision_is_that_of_a_comparison_and_its_record_has_it(tmp_path):
    mixed = Hardware("cpu", precision="bf16-mixed")
    ours = replace(problem(tmp_path), hardware=mixed)
    one = Candidate(ours, Configuration(Single()))
    job = Job(network, ours.task, Single(), 0, Training(steps=2), "network", tmp_path, digest=ours.digest)
    assert one.key_in_comparison(shifted=True) == replace(job, hardware=mixed).key != job.key
    found = run_candidate(one, None, lambda ensemble, row: None, lambda: None)
    assert found.training["precision"] == "bf16-mixed"
    assert final_record(one, shifted=False).training["precision"] == "bf16-mixed"


def test_drawn_settings_replace_those_of_the_training_and_of_the_recipe(tmp_path):
    trained = candidate(tmp_path, SAE(), training={"steps": 7, "lr": 0.5, "weight_decay": 0.25}).training
    assert (trained.steps, trained.lr, trained.weight_decay) == (14, 0.5, 0.25)


def test_width_is_part_of_the_network(tmp_path):
    wide = candidate(tmp_path, sizes={"width": 8})
    assert wide.network == "network(width=8)"
    assert wide.label == "single, width=8"
    assert sum(p.numel() for p in wide.convert().parameters()) > sum(
        p.numel() for p in candidate(tmp_path).convert().parameters()
    )


def test_depth_is_part_of_the_network(tmp_path):
    deep = candidate(tmp_path, sizes={"width": 8, "depth": 3})
    object.__setattr__(deep.problem, "build", lambda width, depth: residual_mlp(2, 2, width, depth))
    assert deep.network == "network(width=8, depth=3)"
    assert deep.label == "single, width=8, depth=3"
    names = [name for name, _ in deep.problem.make({"width": 8, "depth": 3}).named_parameters()]
    assert any("blocks.2" in name for name in names)


def test_network_without_a_width_is_named(tmp_path):
    ours = problem(tmp_path)
    object.__setattr__(ours, "build", lambda: network())
    with pytest.raises(SettingError, match="width="):
        ours.make({"width": 8})


def test_label_has_short_numbers(tmp_path):
    assert "prior_scale=0.333" in candidate(tmp_path, DeepEnsembles(prior_scale=1 / 3)).label


def test_depths_are_the_exits_that_the_network_can_have(tmp_path):
    assert problem(tmp_path).depths == 2
    assert digest(problem(tmp_path).single, problem(tmp_path).task.train.example().inputs)
