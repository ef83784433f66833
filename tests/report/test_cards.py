"""Cards: the parts of a page about one group."""

from pluribus.report.cards import answer_card, missing_card, panel_card, table_card
from pluribus.report.figures.drawing import Panel, Selector, figure
from pluribus.report.recommendation import recommend
from pluribus.report.tables import make_table
from tests.report.records import classes, only_group

GROUP = only_group(*(classes(kind, seed) for kind in ("single", "deep_ensembles") for seed in range(2)))
FOUND = recommend(GROUP)


def test_answer_has_a_row_for_each_rival():
    text = answer_card(FOUND)
    assert text.count("<tr>") == len(FOUND.rivals) + 1
    assert 'class="verdict-' in text


def test_answer_without_rivals_has_no_table():
    assert "<table>" not in answer_card(recommend(only_group(classes())))


def test_nothing_missing_has_no_card():
    assert missing_card([]) == ""
    assert "<li>a &lt; b</li>" in missing_card(["a < b"])


def test_chosen_configuration_is_marked_in_the_table():
    text = table_card(make_table(GROUP), FOUND)
    assert text.count("<tr class=chosen>") == 1
    assert 'data-first="ascending"' in text
    assert 'data-first="descending"' in text


def test_table_without_rows_has_no_card():
    empty = only_group(classes(error="ValueError"))
    assert table_card(make_table(empty), recommend(empty)) == ""


def test_recommended_configuration_is_selected():
    labels = tuple(entry.label for entry in GROUP.entries)
    drawn = {(label,): figure([], "x", "y") for label in labels}
    text = panel_card("p-0", Panel("p", "t", "c", drawn, (Selector("configuration", labels),)), FOUND)
    assert text.count(" selected") == 1
    assert f'{FOUND.choice.label}" selected' in text


def test_selector_of_all_shows_all():
    drawn = {("all",): figure([], "x", "y")}
    text = panel_card("p-0", Panel("p", "t", "c", drawn, (Selector("configuration", ("all",)),)), FOUND)
    assert '"all" selected' in text
