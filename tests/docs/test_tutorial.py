"""The tutorial's program, tried with its records, prints what the page says; the other commands of the page exist."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.unit.cli.calling import call
from verification.first_day.commands import tries, words
from verification.first_day.outcome import difference
from verification.first_day.pages import read_page

PAGE = read_page(Path(__file__).parents[2], "docs/tutorial.md")


def test_its_program_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "app", raising=False)
    files = {block.file: block.text for block in PAGE.blocks if block.file is not None}
    assert list(files) == ["app.py", "moves.jsonl"]
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    [command] = [command for command in PAGE.commands() if tries(command.text)]
    found = call(*shlex.split(command.text)[1:], COLUMNS="100")
    sys.modules.pop("app", None)
    assert found.exit_code == 0, found.output
    assert command.shown
    assert difference(command.shown, found.output) is None


def test_its_other_commands_exist() -> None:
    used = [words(command.text) for command in PAGE.commands()]
    assert {parts[1] for parts in used if parts[0] == "penstock"} >= {"try", "dev", "query", "top", "plan"}
    for parts in used:
        if parts[0] == "penstock":
            help_text = call(parts[1], "--help").output
            assert all(part in help_text for part in parts if part.startswith("--"))
