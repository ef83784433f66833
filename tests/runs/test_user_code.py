"""References to the user's code: whatever is wrong with it is one line of ours, and never success."""

import os
import subprocess
import sys

import pytest

import pluribus as pl
from pluribus.cli.parsing import resolve_task
from pluribus.data import two_moons
from pluribus.runs.named_network import Build
from pluribus.runs.user_code import call_own, resolve


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (":net", "must name a function as package.module:function"),
        ("module:", "must name a function as package.module:function"),
        ("..module:net", "must name a function as package.module:function"),
        ("a b:net", "must name a function as package.module:function"),
        ("nowhere.at.all:net", "raised ModuleNotFoundError"),
        ("math:nothing", "raised AttributeError"),
        ("math:pi", "must name a function, got float"),
        ("broken_syntax:net", r"raised SyntaxError: .*broken_syntax\.py, line 1"),
        ("ends_itself:net", r"ended in sys\.exit\(0\)"),
        ("fails_inside:net", r"raised ZeroDivisionError: .* at .*fails_inside\.py:2"),
    ],
)
def test_a_reference_that_names_no_function_is_refused(reference, message, tmp_path, monkeypatch):
    (tmp_path / "broken_syntax.py").write_text("def net(:\n")
    (tmp_path / "ends_itself.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "fails_inside.py").write_text("x = 1\nx / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(pl.SettingError, match=message):
        resolve(reference)


def test_a_reference_names_a_function():
    assert resolve("os.path:join") is os.path.join
    assert resolve("pathlib:Path.cwd")() == resolve("pathlib:Path").cwd()


def test_code_that_ends_the_process_is_an_error():
    task = two_moons(train=20)
    for make in (lambda: Build("sys:exit", task), lambda: resolve_task("sys:exit", None, None)):
        with pytest.raises(pl.SettingError, match=r"sys:exit must return .* ended in sys\.exit"):
            make()


def test_what_own_code_raises_names_the_line():
    def fails():
        raise RuntimeError("no network today")

    says = rf"x:y must return .* raised RuntimeError: no network today, at {__file__}:\d+"
    with pytest.raises(pl.SettingError, match=says):
        call_own("x:y", fails, {})


def test_an_interrupt_is_left_alone():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_own("x:y", interrupted, {})


def test_the_command_ends_with_an_error_where_own_code_exits(tmp_path):
    line = [sys.executable, "-m", "pluribus.cli", "train", "--task", "two_moons", "--model", "sys:exit"]
    done = subprocess.run([*line, "--out", str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: sys:exit must return without an error" in done.stderr
    assert "Traceback" not in done.stderr
