"""The page is self-contained, and holds what its form needs."""

import json
import re
import shutil

import pytest

from pluribus.serving.exported import Exported
from pluribus.serving.options import ServerOptions
from pluribus.serving.page import facts, page
from pluribus.serving.service import Service
from tests.serving.files import class_file, number_file, table_file, token_file

BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
PATIENCE = 60_000
"""Milliseconds that a loaded machine may take for what is a matter of a few."""


def make(path):
    return Service(Exported(path, 1), ServerOptions(), path.stem)


def test_the_page_loads_nothing_and_runs_no_names(tmp_path):
    text = page(make(class_file(tmp_path / "m.onnx", method={"kind": "</script><script>alert(1)"})))
    assert not re.search(r"(src|href)=\"?(https?:)?//", text)
    assert text.count("</script>") == 1
    assert "FACTS" not in text


def test_a_table_has_a_field_for_each_column(tmp_path):
    found = facts(make(table_file(tmp_path / "m.onnx")))
    assert [(one["name"], one["kind"]) for one in found["columns"]] == [
        ("age", "number"),
        ("pet", "category"),
    ]
    assert found["columns"][1]["categories"] == ["a", "b"]
    numbers = facts(make(number_file(tmp_path / "n.onnx")))
    assert [(one["name"], one["mean"]) for one in numbers["columns"]] == [("a", 1.0), ("b", 2.0)]


def test_other_inputs_have_an_example(tmp_path):
    assert facts(make(class_file(tmp_path / "m.onnx")))["example"] == [0.0] * 4
    assert facts(make(token_file(tmp_path / "t.onnx")))["example"] == {"tokens": [0] * 8, "mask": [0.0] * 8}
    assert json.dumps(facts(make(class_file(tmp_path / "n.onnx", inputs=5000)))["example"]) == "null"


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_page_draws_an_answer(tmp_path):
    browsers = pytest.importorskip("playwright.sync_api")
    from tests.serving.running import running

    with running(table_file(tmp_path / "pets.onnx")) as server, browsers.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        problems = []
        view = browser.new_page(color_scheme="dark")
        view.on("pageerror", lambda error: problems.append(str(error)))
        view.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        view.goto(f"http://{server.url}/")
        view.get_by_label("age").fill("50")
        view.get_by_role("button", name="Predict").click()
        view.locator(".big").wait_for(timeout=PATIENCE)
        assert view.locator(".big").inner_text() in ("cat", "dog", "cow")
        assert view.locator(".bars .fill").count() == 3
        view.get_by_label("age").fill("old")
        view.get_by_role("button", name="Predict").click()
        view.get_by_role("alert").wait_for(timeout=PATIENCE)
        assert "must hold finite numbers, got 'old'" in view.get_by_role("alert").inner_text()
        browser.close()
        # The browser reports the refused request itself.
        assert [problem for problem in problems if "400" not in problem] == []
