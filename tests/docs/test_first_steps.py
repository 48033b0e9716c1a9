"""The first page of the tutorial: its commands print what it says, and its program is the one that `penstock new` creates."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.calling import call

PAGE = (Path(__file__).parents[2] / "docs" / "first-steps.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))
WIDTH = "100"


def commands(section: str) -> list[tuple[str, str]]:
    """The commands of a section, each with the output that the page shows."""
    blocks = re.findall(r"```console\n(.*?)```", SECTIONS[section], re.DOTALL)
    return [found for block in blocks for found in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)]


def plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def test_the_commands_print_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "app", raising=False)
    shown = [*commands("A project"), *commands("Try it")]
    assert [command.split()[:2] for command, _ in shown] == [["penstock", "new"], ["cd", "shop"], ["penstock", "try"]]
    for command, output in shown:
        program, *arguments = shlex.split(command)
        if program == "cd":
            monkeypatch.chdir(tmp_path / arguments[0])
            continue
        found = call(*arguments, COLUMNS=WIDTH)
        assert found.exit_code == 0, found.output
        assert plain(found.output) == plain(output)
    sys.modules.pop("app", None)
    [block] = re.findall(r"```python\n(.*?)```", SECTIONS["A project"], re.DOTALL)
    assert block in (tmp_path / "shop" / "app.py").read_text(encoding="utf-8")


def test_the_change_that_it_proposes_changes_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before, after = re.findall(r"for example `(.*?)` to `(.*?)`", PAGE)[0]
    assert call("new", "shop").exit_code == 0
    program = tmp_path / "shop" / "app.py"
    assert before in program.read_text()
    outputs = []
    for text in (program.read_text(), program.read_text().replace(before, after)):
        program.write_text(text)
        command = [sys.executable, "-B", "-m", "penstock.cli", "try", "app.py", "--input", "orders=data/orders.jsonl", "--json"]
        outputs.append(subprocess.run(command, cwd=tmp_path / "shop", capture_output=True, text=True, check=True).stdout)
    assert outputs[0] != outputs[1]


def test_its_other_commands_exist() -> None:
    assert commands("Run it")
    for command, _ in commands("Run it"):
        words = [word for word in shlex.split(command) if not word.startswith("KAFKA_HOME=")]
        help_text = call(words[1], "--help").output
        assert all(word in help_text for word in words if word.startswith("--"))
