"""Use card: lines that name what is there, and nothing where nothing is."""

import json

from pluribus.data import two_moons
from pluribus.data.signature import Signature
from pluribus.report.best_run import run_folder
from pluribus.report.budget import parse_budget
from pluribus.report.recommendation import recommend
from pluribus.report.use_card import use_card
from tests.report.records import classes, only_group


def found(budget=""):
    group = only_group(classes(), classes("deep_ensembles", skill=4.0))
    return recommend(group, parse_budget(budget))


def test_lines_use_the_recommended_run(tmp_path):
    recommended = found()
    place = run_folder(tmp_path, recommended.choice.runs[0])
    (place / "ensemble").mkdir(parents=True)
    shown = use_card(recommended, tmp_path)
    assert f"pluribus predict {tmp_path} INPUTS" in shown
    assert f"pl.load_run(&quot;{tmp_path}&quot;).predict(&quot;INPUTS&quot;)" in shown
    task = two_moons()
    Signature.of(task).save(place)
    shown = use_card(recommended, tmp_path)
    assert f"pluribus predict {tmp_path} inputs.npy" in shown
    assert "predict(&quot;inputs.npy&quot;)" in shown


def test_a_network_of_the_user_has_to_be_passed(tmp_path):
    recommended = found()
    place = run_folder(tmp_path, recommended.choice.runs[0])
    (place / "ensemble").mkdir(parents=True)
    document = {"task": "mine", "options": []}
    (place / "run.json").write_text(json.dumps(document | {"model": "hostile:build"}))
    shown = use_card(recommended, tmp_path)
    assert f"pl.load_run(&quot;{tmp_path}&quot;, network=build()).predict(x)" in shown
    assert "--model PACKAGE.MODULE:FUNCTION" in shown
    # A line to copy must not name code that a file chose.
    assert "hostile" not in shown
    (place / "run.json").write_text(json.dumps(document | {"model": "mlp(width=8)"}))
    shown = use_card(recommended, tmp_path)
    assert "network=" not in shown
    assert "--model" not in shown


def test_nothing_is_shown_without_a_stored_ensemble(tmp_path):
    assert use_card(found(), tmp_path) == ""
    assert use_card(found(), None) == ""
    assert use_card(found("parameters<=0.1x"), tmp_path) == ""
