"""The README's code runs as it stands."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_blocks_of_the_readme_run_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), namespace)  # each continues where the last one stopped
    assert "4 rank-1 factors of weight" in capsys.readouterr().out


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#]+)\)", README))
def test_the_links_of_the_readme_lead_somewhere(target):
    assert (Path(__file__).parent.parent / target).exists()
