"""The Python examples of the documentation run."""

import re
from pathlib import Path

import pytest
from conftest import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def test_the_page_on_scripts_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    text = (ROOT / "docs/how-to/script.md").read_text()
    blocks = BLOCK.findall(text)
    assert len(blocks) >= 3
    names = {"points": str(tmp_path / "points.jsonl")}
    for block in blocks:
        exec(block.replace('"points.jsonl"', "points"), names)
