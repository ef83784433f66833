"""The command `testbed` prints a table and writes a page; run again, it computes nothing."""

from typer.testing import CliRunner

from pluribus.cli import main
from pluribus.cli.testbed import print_results
from pluribus.testbed.cells import PAPER_GRID
from pluribus.testbed.protocol import Protocol

LINE = ["testbed", "--methods", "prior,layer_ensembles_2", "--grid", "D=2;lambda=1;epsilon=1", "--seeds", "2"]


def test_the_command_scores_methods_and_continues(tmp_path):
    line = [*LINE, "--steps", "2", "--out", str(tmp_path)]
    first = CliRunner().invoke(main.app, line)
    assert first.exit_code == 0, first.output
    # A narrow terminal breaks long names.
    assert "ranked" in first.output
    assert "2 seeds each: 2 problems" in first.output
    assert (tmp_path / "testbed.html").is_file()
    again = CliRunner().invoke(main.app, line)
    assert "0 of 4 scores to compute" in again.output


def test_wrong_words_are_refused_before_anything_runs(tmp_path):
    for wrong in (
        ["--grid", "X=1"],
        ["--noise", "loud"],
        ["--methods", "nothing"],
        ["--precision", "16-mixed"],
        ["--devices", "2"],
    ):
        outcome = CliRunner().invoke(main.app, [*LINE, *wrong, "--out", str(tmp_path / "new")])
        assert outcome.exit_code != 0
    assert not (tmp_path / "new").exists()


def test_help_names_the_papers_grid():
    assert main.PAPER_GRID == PAPER_GRID


def test_no_results_print_nothing(capsys):
    print_results([], Protocol())
    assert capsys.readouterr().out == ""
