"""The page of a search: the choice, the prices, the front, and what was left out."""

import html
from dataclasses import replace

from pluribus.axes import OneOf
from pluribus.comparison.record import Record
from pluribus.search.page import excluded_card, make_search_page, use_card, write_search_page
from pluribus.search.study import model_option
from tests.search.cases import made_up_study


def test_page_names_the_choice_its_price_and_every_budget(tmp_path):
    study = made_up_study(tmp_path)
    final = {"key1": Record("key1", {"kind": "sae"}, "t", "n", 0, {}, metrics={"nll": 0.777})}
    page = make_search_page(study, study.choose(), final, {})
    assert "Take sae<wbr>(inputs=2, exits=1)" in page
    assert "20 multiply-adds (2.00 ×)" in page
    assert '<th scope="row">1 ×</th>' in page
    assert '<th scope="row">2 ×</th>' in page
    assert "0.777" in page
    assert 'id="front"' in page
    assert 'id="hypervolume"' in page


def test_left_out_trials_are_counted_with_their_reasons(tmp_path):
    card = excluded_card(made_up_study(tmp_path))
    assert "1 beyond the budget; 1 failed" in card
    assert "parameters 9 ×" in card


def test_lines_to_use_it_name_a_network_of_ones_own(tmp_path):
    study = made_up_study(tmp_path)
    for name, option in (
        ("network", ' --model "PACKAGE.MODULE:FUNCTION"'),
        ("mine:build", ' --model "mine:build"'),
        ("residual_mlp", ""),
    ):
        changed = replace(study, problem=replace(study.problem, network=name))
        assert model_option(changed, changed.choose()) == option
        line = f"pluribus export {tmp_path / 'taken'}{option}"
        assert f"<code>{html.escape(line)}</code>" in use_card(changed, changed.choose())
    changed = replace(study, space=replace(study.space, sizes={"width": OneOf((4, 8))}))
    wide = replace(study.choose(), parameters={**study.choose().parameters, "width": 8})
    assert model_option(changed, wide) == ' --model "PACKAGE.MODULE:FUNCTION(width=8)"'


def test_page_is_written_into_the_folder_of_the_search(tmp_path):
    study = made_up_study(tmp_path)
    assert write_search_page(study, study.choose(), {}, {}) == tmp_path / "report.html"
