"""The display of a comparison: counts, notes, and the time left of the whole."""

import io

import pytest

from pluribus.comparison import display
from pluribus.comparison.display import Display, Stage, trained


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_lines_are_printed_where_there_is_no_terminal(clock, capsys):
    with Display(4, done=1, clock=clock) as shown:
        shown.note("single seed 0", "waiting [for it]")
        clock.now = 10
        shown.finish("single seed 0", "done")
        shown.finish("single seed 1", "failed")
        shown.finish("single seed 2", "done")
    assert capsys.readouterr().out.splitlines() == [
        "comparing: 4 runs, 1 finished before",
        "single seed 0: waiting [for it]",
        "single seed 0: done; 0:00:10, 0:00:20 left",
        "single seed 1: failed; 0:00:10, 0:00:05 left",
        "single seed 2: done",
    ]


def test_the_time_left_counts_runs_under_way_in_part(clock):
    shown = Display(2, on=False, clock=clock)
    clock.now = 30
    assert shown.times() == "0:00:30"
    shown.note("a", Stage("epoch 1 of 2", 0.3))
    shown.note("b", Stage("epoch 1 of 2", 0.2))
    assert shown.times() == "0:00:30, 0:01:30 left"


def test_no_time_left_is_guessed_from_the_first_epoch(clock):
    shown = Display(24, on=False, clock=clock)
    clock.now = 33
    shown.note("a", trained(1, 70, 2.0))
    assert shown.times() == "0:00:33"


def test_progress_inside_a_run_is_printed_now_and_then(clock, capsys):
    with Display(1, clock=clock) as shown:
        for now in (1, 20, 31, 40, 62):
            clock.now = now
            shown.note("a", trained(now, 100, 0.25))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "a: epoch 31 of 100, loss 0.25; 0:00:31, 0:02:15 left",
        "a: epoch 62 of 100, loss 0.25; 0:01:02, 0:01:44 left",
    ]


def test_training_is_followed_by_measuring():
    assert trained(3, 4, 0.123456) == Stage("epoch 3 of 4, loss 0.1235", 0.75 * display.SHARE_OF_TRAINING)
    assert trained(4, 4, 0.1).text == "measuring"


def test_a_terminal_shows_a_bar_and_a_line_for_each_run(clock):
    from rich.console import Console

    shown = Display(3, done=1, on=False, clock=clock)
    shown.note("deep_sub_ensembles seed 0", trained(12, 30, 0.125))
    shown.note("single [seed] 1", trained(30, 30, 0.125))
    clock.now = 60
    console = Console(width=80, file=io.StringIO())
    console.print(shown.render())
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines[0].startswith("comparing ")
    assert lines[0].endswith("1 of 3 runs 0:01:00, 0:01:22 left")
    assert lines[1] == "  deep_sub_ensembles seed 0  epoch 12 of 30, loss 0.125"
    assert lines[2] == "  single [seed] 1            measuring"


def test_a_silent_display_prints_nothing(capsys):
    with Display(1, on=False) as shown:
        shown.note("a", "waiting")
        shown.finish("a", "done")
    assert capsys.readouterr().out == ""
