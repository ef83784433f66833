"""The campaign of `make fuzz`: some of its cases, and that it notices what it is there for."""

import json
import random

import pytest

import pluribus as pl
from tests.fuzz import corpus, mutations
from tests.fuzz.__main__ import Campaign, Worker, run_case
from tests.fuzz.lines import run_line
from tests.fuzz.outcome import Case


@pytest.fixture
def case(tmp_path):
    return Case(tmp_path, tmp_path)


def raising(error):
    def verb():
        raise error

    return verb


@pytest.mark.slow
def test_cases_of_files_and_lines_find_nothing(tmp_path, monkeypatch):
    corpus.make(tmp_path / "corpus", run_line)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = [run_case(kind, number, 0, tmp_path) for kind in ("files", "lines") for number in range(25)]
    assert [line for line in found if line["outcome"] == "finding"] == []
    assert {line["outcome"] for line in found} == {"ok", "refused"}


def test_a_foreign_error_is_a_finding(case):
    case.attempt(raising(KeyError("a")))
    assert (case.outcome, case.findings[0]["kind"]) == ("finding", "KeyError at outside")


def test_an_error_of_pluribus_is_a_refusal_unless_it_is_long(case):
    case.attempt(raising(pl.InputError("short")))
    assert (case.outcome, case.findings) == ("refused", [])
    case.attempt(raising(pl.InputError("long" * 5000)))
    assert case.findings[0]["kind"] == "long message"


def test_a_file_left_behind_is_a_finding(case, tmp_path):
    (tmp_path / "copy").mkdir()
    (tmp_path / "tmp").mkdir()
    case.watch(tmp_path / "copy")
    case.check_litter(tmp_path / "tmp")
    assert case.findings == []
    (tmp_path / "copy" / "new").touch()
    case.check_litter(tmp_path / "tmp")
    assert case.findings[0] == {"kind": "litter", "text": "new"}


def test_a_traceback_in_the_output_is_a_finding(case):
    case.command(lambda arguments: (1, "Traceback (most recent call last):\n"), [])
    assert case.findings[0]["kind"] == "printed traceback"


def test_a_case_over_its_limit_is_noticed(tmp_path, monkeypatch):
    def hang(case, rng):
        while True:
            pass

    monkeypatch.setitem(run_case.__globals__["RUN"], "files", hang)
    monkeypatch.setitem(Worker.run.__globals__["SECONDS"], "files", 0.3)
    worker = Worker(0, tmp_path)
    assert worker.run("files", 0) is None
    assert worker.end() == "over its limit of time"


def test_a_campaign_continues_its_log(tmp_path):
    first = Campaign(tmp_path, 0)
    line = {"kind": "files", "case": 0, "name": "csv", "outcome": "ok", "seconds": 1.0}
    first.write(line)
    first.file.write('{"kind": "fil')
    first.file.close()
    again = Campaign(tmp_path, 0)
    assert again.next["files"] == 1
    assert again.summary(0)["cases"] == {"files": 1}
    assert again.pick(["files", "lines"])[0] == "lines"
    again.file.close()


def test_a_case_depends_on_its_number_alone():
    document = {"a": [1, 2, {"b": "c"}], "d": 1.5}
    edits = [mutations.edit(random.Random("0 files 7"), json.loads(json.dumps(document))) for _ in range(2)]
    assert repr(edits[0]) == repr(edits[1])
