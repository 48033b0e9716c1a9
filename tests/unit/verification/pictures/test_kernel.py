"""The cells of a notebook: what each shows, one namespace, and errors that end the run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from verification.pictures.kernel import Cell, Output, cells, outputs
from verification.pictures.notebook import NOTEBOOK


def test_the_last_line_of_a_cell_is_shown_if_it_has_a_value() -> None:
    assert outputs(["a = 20\na + 1", "a = 5", "None", "a + 1"], 0) == [
        Output("text", "21"),
        Output(None, ""),
        Output(None, ""),
        Output("text", "6"),
    ]


def test_objects_show_what_they_give_a_notebook() -> None:
    rich = "class Rich:\n    def _repr_html_(self):\n        return '<b>rich</b>'\nRich()"
    drawn = "class Drawn:\n    def _repr_svg_(self):\n        return '<svg/>'\nDrawn()"
    assert outputs([rich, drawn], 0) == [Output("html", "<b>rich</b>"), Output("svg", "<svg/>")]


def test_an_error_ends_the_run_and_output_is_as_before() -> None:
    before = sys.displayhook
    with pytest.raises(ZeroDivisionError):
        outputs(["1 / 0", "this is not reached"], 0)
    assert sys.displayhook is before


def test_cells_are_read_from_the_file(tmp_path: Path) -> None:
    given = [{"cell_type": "markdown", "source": ["Words."]}, {"cell_type": "code", "source": ["a = 1\n", "a"]}]
    (tmp_path / "some.ipynb").write_text(json.dumps({"cells": given}))
    assert cells(tmp_path / "some.ipynb") == [Cell(False, "Words."), Cell(True, "a = 1\na")]


def test_the_notebook_of_the_pictures_runs_as_far_as_it_needs_no_broker() -> None:
    drawing, tables = outputs([cell.source for cell in cells(NOTEBOOK) if cell.is_code][:2], 0)
    assert drawing.kind == "svg"
    assert "<td>not</td>" in tables.content
