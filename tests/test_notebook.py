"""Objects show themselves as tables in notebooks, with every text escaped."""

from html.parser import HTMLParser

import pytest
import torch

import pluribus as pl
from pluribus.comparison import Record
from pluribus.conversion_record import Conversion, LayerRecord
from pluribus.methods import DeepEnsembles
from pluribus.notebook import MOST_ROWS, html_table

EVIL = "<script>alert('x')</script>"


class Page(HTMLParser):
    """Collects tags and texts, and fails where a tag is not closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def record():
    metrics, cost = {"nll": 0.25}, {"parameters": 10.0}
    method = {"kind": "single", "version": 1}
    return Record("key", method, EVIL, "net", 0, {}, metrics=metrics, cost=cost, error=EVIL)


def prediction():
    ensemble = pl.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2))
    return ensemble.predict(torch.zeros(MOST_ROWS + 7, 3))


SHOWN = {
    "conversion": (
        lambda: Conversion("t", (LayerRecord((EVIL,), "Linear", "4 copies"),), (EVIL,)),
        "4 copies",
    ),
    "cost": (lambda: pl.cost(torch.nn.Linear(3, 2), torch.zeros(1, 3)), "multiply-adds"),
    "record": (record, "0.25"),
    "prediction": (prediction, "and 7 more rows"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_object_shows_itself(name):
    make, expected = SHOWN[name]
    page = Page(make()._repr_html_())
    assert expected in page.texts
    assert set(page.tags) <= {"div", "p", "b", "table", "tr", "th", "td"}


def test_colours_are_those_of_the_notebook():
    text = html_table("t", ["a"], [["b"]])
    assert "currentColor" in text
    assert "background" not in text
    assert "#" not in text


def test_a_prediction_of_images_shows_its_shape():
    outputs = torch.zeros(2, 3, 4, 5, 5)
    assert "(3, 5, 5)" in pl.Categorical().prediction(outputs)._repr_html_()
