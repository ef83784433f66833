"""Running: parts are kept as soon as they are done, and are not computed again."""

import pytest

from pluribus.testbed import running
from pluribus.testbed.cells import Cell, parse_grid
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.results import read_results
from pluribus.testbed.running import plan_parts, run_testbed

GRID = parse_grid("D=2;lambda=2;epsilon=0.1,1")
PROTOCOL = Protocol(steps=2, points=6)


def test_first_seeds_of_all_methods_come_first():
    parts = list(plan_parts(["a", "b"], parse_grid("D=2;lambda=1,2;epsilon=1"), [5, 6, 7], at_once=2))
    assert [(part.name, part.shape, part.seeds) for part in parts[:4]] == [
        ("a", (2, 1), (5, 6)),
        ("b", (2, 1), (5, 6)),
        ("a", (2, 2), (5, 6)),
        ("b", (2, 2), (5, 6)),
    ]
    assert len(parts) == 8
    assert parts[-1].seeds == (7,)


def test_a_run_scores_every_cell_and_seed(tmp_path):
    names = ["deep_ensembles(members=3)", "layer_ensembles_2", "exact_posterior"]
    results = run_testbed(names, GRID, [0, 1], PROTOCOL, tmp_path / "file", print)
    assert len(results) == 3 * 2 * 2
    layers = next(result for result in results if result.method == "layer_ensembles_2")
    assert set(layers.ranked) == set(range(1, 9))
    assert layers.ranked[8]["code"] == pytest.approx(layers.scores["code"], rel=1e-4)
    assert layers.random[8]["code"] == pytest.approx(layers.scores["code"], rel=1e-4)
    assert layers.best in layers.ranked
    assert layers.cell in (Cell(2, 2, 0.1), Cell(2, 2, 1.0))


def test_a_run_continues_where_it_stopped(tmp_path, monkeypatch):
    path, names = tmp_path / "file", ["exact_posterior", "prior"]
    run = running._run_part

    def stop_at_second(part, *given):
        if part.name == "prior":
            raise KeyboardInterrupt
        return run(part, *given)

    monkeypatch.setattr(running, "_run_part", stop_at_second)
    with pytest.raises(KeyboardInterrupt):
        run_testbed(names, GRID, [0], PROTOCOL, path, print)
    assert {result.method for result in read_results(path)} == {"exact_posterior"}
    computed = []
    monkeypatch.setattr(
        running, "_run_part", lambda part, *given: computed.append(part.name) or run(part, *given)
    )
    assert len(run_testbed(names, GRID, [0], PROTOCOL, path, print)) == 4
    assert computed == ["prior"]


def test_the_other_direction_needs_no_training(tmp_path, monkeypatch):
    path = tmp_path / "file"
    run_testbed(["prior"], GRID, [0], PROTOCOL, path, print)
    monkeypatch.setattr(running, "_run_part", lambda *given: pytest.fail("computed again"))
    assert len(run_testbed(["prior"], GRID, [0], PROTOCOL.in_direction("printed"), path, print)) == 2
