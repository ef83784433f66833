"""The run to take is printed where a comparison or a search chose it."""

import json

from pluribus.cli.announced_run import announced_run


def test_a_choice_is_printed_and_a_single_run_is_not(tmp_path, capsys):
    assert announced_run(tmp_path) == tmp_path
    assert capsys.readouterr().err == ""
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "run.json").write_text("{}")
    choice = {"trial": 3, "label": "sae(inputs=2)", "key": "k", "values": {"nll": 0.5}, "cost": {}}
    (taken / "choice.json").write_text(json.dumps(choice))
    assert announced_run(tmp_path) == taken
    assert "was chosen by its search" in capsys.readouterr().err
