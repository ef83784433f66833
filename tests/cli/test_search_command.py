"""`pluribus search`: from the line to a folder that predicts; wrong lines are refused."""

import json
import os

import numpy as np
import pytest
from typer.testing import CliRunner

from pluribus.cli.main import app
from pluribus.cli.search_command import read_space_file, words
from pluribus.errors import CheckpointError

LINE = [
    "search",
    "--task",
    "two_moons",
    "--option",
    "train=40",
    "--steps",
    "2",
    "--trials",
    "2",
    "--no-recipes",
]
LINE += ["--model", "residual_mlp", "--methods", "single,deep_ensembles", "--sampler", "random"]


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.slow
def test_search_ends_with_a_folder_that_predicts(tmp_path):
    out = tmp_path / "search"
    taken = ["--take", "parameters<=4x", "--budget", "parameters<=9x", "--vary", "width"]
    done = invoke(*LINE, *taken, "--out", out)
    assert done.exit_code == 0, done.output
    assert (out / "report.html").is_file()
    np.save(tmp_path / "x.npy", np.zeros((3, 2), dtype=np.float32))
    done = invoke("predict", out, tmp_path / "x.npy", "--out", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--objectives", "nlll"], "objectives are"),
        (["--take", "parameters<2x"], "<="),
        (["--methods", "sea"], "sae"),
        (["--devices", "2"], "Run the same line once for each device"),
        (["--accelerator", "abacus"], "Lightning Fabric"),
        (["--space", "missing.json"], "missing.json must be a file, got nothing"),
        (["--storage", "postgresql://ann:secret@127.0.0.1:9/db"], "can be reached"),
    ],
)
def test_wrong_lines_are_refused(tmp_path, arguments, reason):
    done = invoke(*LINE, *arguments, "--out", tmp_path)
    assert done.exit_code != 0
    assert reason in str(done.exception)


def test_space_file_must_hold_a_dict(tmp_path):
    (tmp_path / "space.json").write_text(json.dumps({"single": {}, "flat": True}))
    assert read_space_file(tmp_path / "space.json") == {"single": {}}
    for text, reason in (("[]", "must be an object"), ('{"a":' * 10**5, "nested"), ("", "expected JSON")):
        (tmp_path / "space.json").write_text(text)
        with pytest.raises(CheckpointError, match=reason):
            read_space_file(tmp_path / "space.json")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="must be a file"):
        read_space_file(tmp_path / "pipe")
    assert words(" lr, width,") == ["lr", "width"]
