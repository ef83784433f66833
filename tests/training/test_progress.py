"""Progress on the terminal: it counts, it tells, and it can be silent."""

from pluribus.training import progress
from pluribus.training.progress import Show


def test_a_bar_counts_from_what_was_done_before(capsys):
    with Show("learning", total=4, done=2) as bar:
        bar.advance()
        assert bar.bar.tasks[0].completed == 3
        bar.advance()
        bar.tell("epoch 2 of 2, loss 0.25")
        bar.say("half way [not markup]")
    printed = capsys.readouterr().out
    assert "learning" in printed
    assert "100 %" in printed
    assert "epoch 2 of 2, loss 0.25" in printed
    assert "half way [not markup]" in printed


def test_a_silent_bar_prints_nothing(capsys):
    with Show("learning", total=2, on=False) as bar:
        bar.advance()
        bar.tell("loss 1.0")
        bar.say("nothing")
    assert capsys.readouterr().out == ""


def test_without_rich_there_is_no_bar(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with Show("learning", total=2) as bar:
        bar.advance()
    assert bar.bar is None
    assert capsys.readouterr().out == ""


def test_words_are_printed_now_and_then_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", -1.0)
    with Show("learning", total=2) as bar:
        bar.tell("epoch 1 of 2, loss 0.5")
    assert "learning: epoch 1 of 2, loss 0.5\n" in capsys.readouterr().out
