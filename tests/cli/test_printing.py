"""Lines for the terminal."""

from pluribus.cli.printing import counted, say


def test_say_prints_on_stderr_alone(capsys):
    say("[bold] is no markup here")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.strip() == "[bold] is no markup here"


def test_counted_adds_an_s():
    assert [counted(n, "epoch") for n in (0, 1, 2)] == ["0 epochs", "1 epoch", "2 epochs"]
