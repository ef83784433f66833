"""Lines for the terminal."""

import io

from pluribus.cli.printing import counted, never_fail_on_characters, say


def test_say_prints_on_stderr_alone(capsys):
    say("[bold] is no markup here")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.strip() == "[bold] is no markup here"


def test_counted_adds_an_s():
    assert [counted(n, "epoch") for n in (0, 1, 2)] == ["0 epochs", "1 epoch", "2 epochs"]


def test_characters_that_a_terminal_lacks_are_escaped(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii", write_through=True))
    never_fail_on_characters()
    print("±", "a\udcff")
    assert written.getvalue() == b"\\xb1 a\\udcff\n"
