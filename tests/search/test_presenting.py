"""Presenting a search on the terminal."""

import json
from dataclasses import replace

import pytest

from pluribus.errors import CheckpointError, SettingError
from pluribus.search.objectives import parse_objectives
from pluribus.search.presenting import present
from tests.search.cases import made_up_study


def test_front_and_choice_are_printed_beside_another_search(tmp_path, capsys):
    other = replace(made_up_study(tmp_path / "random"), sampler="random")
    other.save()
    study = made_up_study(tmp_path / "own")
    page = present(study, study.choose(), {}, [tmp_path / "random"])
    printed = " ".join(capsys.readouterr().out.split())
    assert "Take sae(inputs=2, exits=1). It costs 5 parameters" in printed
    assert '"random"' in page.read_text()


def test_search_with_other_objectives_is_refused(tmp_path):
    study = made_up_study(tmp_path)
    study.save()
    with pytest.raises(SettingError, match="same objectives"):
        replace(study, objectives=parse_objectives("ece")).read_other(tmp_path)


def test_other_search_with_a_value_too_few_is_refused(tmp_path):
    study = made_up_study(tmp_path)
    file = study.save()
    document = json.loads(file.read_text())
    document["values"][0].pop()
    file.write_text(json.dumps(document))
    with pytest.raises(CheckpointError, match="must have 2 values of each trial, got 1"):
        study.read_other(tmp_path)
