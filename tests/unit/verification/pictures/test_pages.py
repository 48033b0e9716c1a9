"""Pages of pictures: a notebook's, whose content is escaped, and a terminal's, whose colours and commands are real."""

from __future__ import annotations

import doctest
from itertools import pairwise
from pathlib import Path

import pytest

from verification.pictures import camera
from verification.pictures.kernel import Cell, Output
from verification.pictures.notebook import LINES, check, numbered, page
from verification.pictures.running_shop import _is_due
from verification.pictures.terminal import Command, Terminal
from verification.pictures.terminal import page as screen_page

GOOD = [
    Output("svg", "<svg>lines</svg>"),
    Output("html", "<td>not</td>"),
    Output("text", "True"),
    Output("html", f"<td>records</td><td>{LINES:,}</td>"),
]


def test_a_notebook_has_its_cells_in_order_with_what_they_show() -> None:
    cells = [Cell(False, "With `a < b`."), Cell(True, "a = 1"), Cell(True, "'<i>'")]
    found = page(numbered(cells, [Output(None, ""), Output("text", "'<i>'")]))
    order = ["With <code>a &lt; b</code>.", "In [1]:", "In [2]:", "Out[2]:", "<pre>&#x27;&lt;i&gt;&#x27;</pre>", "</html>"]
    places = [found.index(part) for part in order]
    assert places == sorted(places)
    assert "Out[1]:" not in found


def test_a_notebook_that_shows_something_else_is_noticed() -> None:
    assert check(GOOD) == GOOD
    for number in (0, 1, 3):
        for wrong in (Output("text", GOOD[number].content), Output(GOOD[number].kind, "nothing")):
            with pytest.raises(AssertionError, match=f"cell {number + 1}"):
                check([*GOOD[:number], wrong, *GOOD[number + 1 :]])


def test_a_screen_keeps_its_colours_and_is_escaped() -> None:
    found = screen_page("\x1b[1;31mtopology\x1b[0m: a <lambda>\n┏━━┓", 80)
    assert 'font-weight: bold">topology</span>: a &lt;lambda&gt;\n┏━━┓' in found
    assert "http" not in found


def test_commands_run_in_a_terminal_of_a_given_width(tmp_path: Path) -> None:
    found = Terminal(directory=tmp_path, columns=60).run(Command(line="penstock --help", shows=["Kafka Streams for Python"]))
    assert found.startswith("\x1b[32m$\x1b[0m penstock --help\n")
    assert max(map(len, found.splitlines())) >= 60
    assert "\x1b[" in found.partition("\n")[2], "it has colours"
    assert "─" * 61 not in found


def test_a_command_that_ends_otherwise_or_says_something_else_is_noticed(tmp_path: Path) -> None:
    terminal = Terminal(directory=tmp_path)
    with pytest.raises(AssertionError, match="ended with 0, not 3"):
        terminal.run(Command(line="penstock --help", exit_code=3))
    with pytest.raises(AssertionError, match="does not show"):
        terminal.run(Command(line="penstock --help", shows=["something else"]))


def test_an_order_is_due_once_in_each_span() -> None:
    times = [number / 10 for number in range(101)]
    assert sum(_is_due(3.0, before, now) for before, now in pairwise(times)) == 3


def test_the_examples_of_the_camera_pass() -> None:
    result = doctest.testmod(camera)
    assert (result.failed, result.attempted) == (0, 2)
