"""The page as text: what is on it, what it says of what is not, and that it needs nothing else."""

import html
import json
import math
import os
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from pytest import raises

from pluribus.errors import SettingError
from pluribus.report.budget import parse_budget
from pluribus.report.groups import group_records
from pluribus.report.page import FILE, make_page, write_page
from tests.report.records import classes, failed, numbers

LARGEST = 8_000_000
RUNS = [classes(kind, seed, skill) for kind, skill in (("single", 1), ("mc_dropout", 3)) for seed in range(3)]


class Reader(HTMLParser):
    """Collects ids, addresses and running text, and that every element is closed."""

    VOID = frozenset({"meta", "link", "img", "br", "wbr", "input"})

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.addresses, self.said = [], [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        self.addresses += [found[name] for name in ("src", "href") if name in found]
        self.open += [tag] if tag not in self.VOID else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.said.append(data)


def page(*records, **settings):
    return Reader(make_page(group_records(records), **settings))


def said(*records, **settings):
    return re.sub(r"\s+", " ", "".join(page(*records, **settings).said))


def test_everything_is_inside_and_nothing_is_loaded():
    found = page(*RUNS)
    assert found.addresses
    assert all(address.startswith("data:") for address in found.addresses)
    assert len(found.ids) == len(set(found.ids))


def test_it_says_what_to_take_and_shows_every_figure():
    found = page(*RUNS)
    assert "Take mc_dropout" in "".join(found.said)
    for name in ("pareto", "reliability", "selective", "separation", "severity"):
        assert f"{name}-0" in found.ids
    assert "Least sure" in "".join(found.said)
    assert "trained: 3 epochs" in "".join(found.said)


def test_a_budget_and_a_metric_reach_the_recommendation():
    dear = [classes("deep_ensembles", seed, 5) for seed in range(3)]
    assert "Take deep_ensembles" in said(*RUNS, *dear)
    assert "Take mc_dropout" in said(*RUNS, *dear, limits=parse_budget("parameters<=2x"))
    assert "highest Accuracy" in said(*RUNS, metric="accuracy")


def test_two_tasks_stand_apart():
    text = said(*RUNS, numbers(), numbers("mc_dropout"))
    assert "digits · cnn and houses · mlp" in text
    assert "not compared with one another" in text
    assert {"group-0", "group-1", "pareto-0", "intervals-1"} <= set(page(*RUNS, numbers()).ids)


def test_a_metric_that_one_task_lacks_does_not_stop_the_page():
    text = said(*RUNS, numbers(), metric="accuracy")
    assert "highest Accuracy" in text
    assert "Take single" in text


def test_a_metric_that_nobody_has_is_refused():
    with raises(SettingError, match="metric must be one of accuracy, nll"):
        page(*RUNS, metric="elo")


def test_a_failed_run_is_said_and_the_rest_shown():
    text = said(*RUNS, failed())
    assert "What is missing" in text
    assert "mimo, seed 0, failed: ValueError: no <such> layer" in text
    assert "Take mc_dropout" in text


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([failed()], "No run succeeded"),
        ([classes()], "nothing to compare it with"),
        ([classes(), classes("mc_dropout")], "There is one seed"),
        ([classes(outcomes=None, cost={}, ood={}, shifted={})], "No outcomes lie beside the records"),
        ([classes(metrics={}, ood={}, shifted={}, outcomes=None)], "has a quality to judge by"),
        ([], "There are no records."),
    ],
)
def test_poor_records_still_make_sense(records, words):
    assert words in said(*records)


def test_a_missing_metric_is_a_dash_that_sorts_last():
    partial = classes("mimo")
    partial.metrics["ece"] = math.nan
    text = make_page(group_records([*RUNS, partial]))
    assert '<td data-value="">–</td>' in text
    assert "ECE is missing in runs of mimo." in said(*RUNS, partial)


def test_names_that_are_no_unicode_are_written_with_escapes(tmp_path):
    # As the command line reads a name with a byte that is no UTF-8.
    odd = os.fsdecode(b"net\xff")
    write_page(tmp_path, group_records([replace(run, network=odd) for run in RUNS]))
    assert r"net\udcff" in (tmp_path / FILE).read_text(encoding="utf-8")


def test_names_cannot_break_the_page():
    odd = '</script><i id="odd">&'
    nasty = replace(classes(), network=odd, task=f"Task(digits: {odd})", key="nasty")
    nasty.method["note"] = odd
    nasty.ood[odd], nasty.outcomes.ood[odd] = nasty.ood["noise"], nasty.outcomes.ood["noise"]
    gallery = replace(nasty.outcomes.gallery, class_names=(odd,) * 10)
    nasty = replace(nasty, outcomes=replace(nasty.outcomes, gallery=gallery))
    found = page(nasty, replace(failed(error=odd), network=odd, task=nasty.task))
    assert "odd" not in found.ids
    text = "".join(found.said)
    assert all(f"{before}{odd}" in text for before in ("· ", "note=", "failed: ", "sure of "))


def test_heads_sort_the_better_first():
    text = make_page(group_records(RUNS))
    assert re.search(r'data-first="descending"><button[^>]*>Accuracy ↑', text)
    assert re.search(r'data-first="ascending"><button[^>]*>NLL ↓', text)


def test_the_recommended_configuration_is_chosen_first():
    assert '<option value="mc_dropout" selected>' in make_page(group_records(RUNS))


def test_choices_keep_names_as_they_are():
    odd = classes("mc_dropout")
    odd.method["note"] = 'a|b  "c"'
    text = make_page(group_records([classes(), odd]))
    label = 'mc_dropout(note=a|b  "c")'
    assert f'<option value="{html.escape(label)}"' in text
    figures = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])
    assert (
        json.dumps([label, "noise", "entropy"], separators=(",", ":")) in figures["separation-0"]["figures"]
    )


def test_a_frame_marks_what_the_ensemble_answers_wrong_whatever_its_members_vote():
    run = classes()
    gallery = run.outcomes.gallery
    gallery.target[:], gallery.label[:], gallery.votes[:] = 1, 1, 2
    assert "<li class=wrong>" not in make_page(group_records([run]))
    gallery.label[0] = 3
    text = make_page(group_records([run]))
    assert text.count("<li class=wrong>") == 1
    assert re.search(r"% sure of <b>class &lt;3&gt;</b>, is <b>class &lt;1&gt;</b>", text)


def test_every_task_tells_its_sizes():
    text = said(*RUNS, numbers())
    assert "300 train, 60 validation, 200 test; inputs [1, 8, 8]" in text
    assert "inputs [4]; Gaussian" in text


def test_ten_methods_fit_into_a_letter(tmp_path):
    kinds = ["single", *(f"method_{i}" for i in range(9))]
    path = write_page(tmp_path, group_records([classes(k, s, 2) for k in kinds for s in range(3)]))
    assert path == tmp_path / FILE
    assert path.stat().st_size < LARGEST


def test_terms_are_explained_where_they_stand():
    text = make_page(group_records(RUNS))
    assert re.search(r'<span class="term" tabindex="0" data-tip="Average surprise[^"]*">NLL</span>', text)
    assert re.search(r'<button type="button" data-tip="How far confidence[^"]*">ECE', text)
