"""Packages that report on their use send nothing when they are imported by this library."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "pluribus"


def run(code, folder):
    """Return what code printed in a process of its own, whose temporary files lie in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"TMPDIR": str(folder), "HOME": str(folder)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_onnxruntime_keeps_no_session_for_reports(tmp_path):
    pytest.importorskip("onnxruntime")
    run("from pluribus.quiet_import import quiet_import; quiet_import('onnxruntime')", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_openvino_takes_the_part_that_sends_nothing(tmp_path):
    pytest.importorskip("openvino")
    code = (
        "import sys; from pluribus.quiet_import import quiet_import; quiet_import('openvino');"
        "from openvino.tools.ovc import telemetry_utils as used;"
        "print(used.tm.__name__, 'openvino_telemetry' in sys.modules)"
    )
    assert run(code, tmp_path) == "openvino.tools.ovc.telemetry_stub False"


def test_a_choice_of_the_user_counts(tmp_path):
    code = (
        "import os; os.environ['ORT_DISABLE_TELEMETRY'] = '0';"
        "from pluribus.quiet_import import quiet_import; quiet_import('json');"
        "print(os.environ['ORT_DISABLE_TELEMETRY'])"
    )
    assert run(code, tmp_path) == "0"


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_nothing_else_imports_them(name):
    for file in SOURCE.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for form in (f"import {name}", f"from {name}", f'import_module("{name}")'):
            assert form not in text.replace(f'quiet_import("{name}")', ""), file
