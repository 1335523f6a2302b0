"""The notebooks of the examples run, and the figures appear."""

from pathlib import Path

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient

NOTEBOOKS = sorted((ROOT / "host/python/examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    NotebookClient(notebook, resources={"metadata": {"path": ROOT}}).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [output for cell in cells for output in cell.outputs if "data" in output]
    assert any("image/png" in output.data for output in shown), "a figure"


def test_the_figure_of_three_mechanisms_is_short() -> None:
    path = ROOT / "host/python/examples/mechanisms.ipynb"
    notebook = nbformat.read(path, as_version=4)
    lines = [
        line
        for cell in notebook.cells
        if cell.cell_type == "code"
        for line in cell.source.splitlines()
        if line.strip()
    ]
    assert len(lines) <= 30, len(lines)
