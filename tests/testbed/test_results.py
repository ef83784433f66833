"""Results: lines come back as they were, and half a line is cut off."""

import json
import math

import pytest

from pluribus.errors import CheckpointError
from pluribus.testbed.cells import Cell
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.results import FILE, Result, append_results, check_lines, read_results

SCORES = {"code": 0.25, "printed": 0.5}


def make_result(method="swag", seed=1, **changes):
    values = {"settings": Protocol().training, "scores": SCORES, "joint": 0.125, "seconds": 1.5}
    return Result(method, Cell(10, 1, 0.1), seed, **values | changes)


def test_lines_come_back_as_they_were(tmp_path):
    first = make_result(random={2: SCORES}, ranked={1: SCORES, 2: SCORES}, best=2)
    append_results(tmp_path / "file", [first, make_result(seed=2)])
    append_results(tmp_path / "file", [make_result("vnn")])
    assert read_results(tmp_path / "file") == [first, make_result(seed=2), make_result("vnn")]


def test_no_file_has_no_results(tmp_path):
    assert read_results(tmp_path / "none") == []


def test_half_a_line_costs_itself_alone(tmp_path):
    path = tmp_path / "file"
    append_results(path, [make_result(), make_result(seed=2)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert [result.seed for result in read_results(path)] == [1]
    append_results(path, [make_result(seed=3)])
    assert [result.seed for result in read_results(path)] == [1, 3]


def test_results_of_other_protocols_are_left_out(tmp_path):
    append_results(tmp_path / "file", [make_result(), make_result("vnn", settings={"steps": 1})])
    assert [result.method for result in read_results(tmp_path / "file", Protocol())] == ["swag"]


def test_a_diverged_score_is_a_large_number(tmp_path):
    append_results(tmp_path / "file", [make_result(joint=math.inf)])
    assert read_results(tmp_path / "file")[0].joint > 1e200


@pytest.mark.parametrize("curve", [{"x": [1.0, 2.0]}, {"1": [1.0]}, {"9" * 5000: [1.0, 2.0]}], ids=len)
def test_a_foreign_curve_costs_its_line_alone(tmp_path, curve):
    file = tmp_path / FILE
    append_results(file, [make_result(seed=1), make_result(seed=2)])
    first, second = file.read_text().splitlines()
    file.write_text(json.dumps(json.loads(first) | {"random": curve}) + "\n" + second + "\n")
    assert [one.seed for one in read_results(file)] == [2]
    with pytest.raises(CheckpointError, match="line 1 is damaged"):
        check_lines(file)
