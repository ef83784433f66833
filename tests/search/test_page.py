"""The page of a search: the choice, the prices, the front, and what was left out."""

from pluribus.comparison.record import Record
from pluribus.search.page import excluded_card, make_search_page, write_search_page
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


def test_page_is_written_into_the_folder_of_the_search(tmp_path):
    study = made_up_study(tmp_path)
    assert write_search_page(study, study.choose(), {}, {}) == tmp_path / "report.html"
