"""Commands that need no broker: their output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

import penstock
from penstock.app import App
from penstock.cli.commands import commands
from penstock.cli.plan_report import print_plan
from penstock.topology.plan import Changes, Decision, Verdict
from tests.unit.cli.calling import call

APP = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
builder.stream("lines", value=str).flat_map_values(str.split).group_by(lambda _, word: word).count(store="words")
app = App("word-count", builder.build())
"""


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "penstock_cli_words", raising=False)
    path = tmp_path / "penstock_cli_words.py"
    path.write_text(APP)
    return f"{path}:app"


def test_the_version_is_printed() -> None:
    found = call("--version")
    assert (found.exit_code, found.output) == (0, f"penstock {penstock.__version__}\n")


class TestHelp:
    def test_help_lists_the_commands(self) -> None:
        found = call("--help")
        assert found.exit_code == 0
        assert all(
            name in found.output
            for name in (
                "new",
                "try",
                "dev",
                "run",
                "describe",
                "plan",
                "reset",
                "savepoint",
                "restore",
                "doctor",
                "query",
                "top",
                "dlq",
            )
        )

    def test_help_imports_neither_spark_nor_the_kafka_client(self) -> None:
        code = (
            "import sys; from penstock.cli.commands import commands; commands(['--help'], standalone_mode=False); "
            "sys.exit(bool({'pyspark', 'confluent_kafka'} & set(sys.modules)))"
        )
        assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0

    def test_the_package_can_be_run_as_the_command(self) -> None:
        done = subprocess.run([sys.executable, "-m", "penstock.cli", "--help"], capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert "doctor" in done.stdout


class TestDeadLetters:
    def test_help_lists_the_commands_for_dead_letters(self) -> None:
        found = call("dlq", "--help")
        assert found.exit_code == 0
        assert all(name in found.output for name in ("ls", "show", "replay"))
        assert "Usage" in call("dlq", "ls", "--help").output
        assert call("dlq", "nothing").exit_code == 2


def leaves(group: Any, *path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from leaves(command, *path, name)
        else:
            yield " ".join((*path, name)), command


def test_an_option_is_the_same_in_every_command() -> None:
    forms: dict[str, dict[object, list[str]]] = {}
    for path, command in leaves(typer.main.get_command(commands)):
        for parameter in command.params:
            if parameter.name in SHARED:
                form = (*parameter.opts, parameter.metavar, parameter.multiple, parameter.help)
                forms.setdefault(parameter.name, {}).setdefault(form, []).append(path)
    assert forms.keys() == SHARED
    assert {name: list(found.values()) for name, found in forms.items() if len(found) > 1} == {}


SHARED = {"config", "settings", "inputs", "as_json", "application_id", "yes", "admin", "token"}


class TestDescribe:
    def test_text_is_the_format_of_kafka_streams(self, sample: str) -> None:
        found = call("describe", sample)
        assert found.exit_code == 0
        assert found.output.startswith("Topologies:\n")
        assert "(stores: [words])" in found.output

    def test_mermaid(self, sample: str) -> None:
        assert call("describe", sample, "--format", "mermaid").output.startswith("flowchart TD\n")

    def test_json_has_nodes_and_stores(self, sample: str) -> None:
        found = json.loads(call("describe", sample, "--format", "json").output)
        assert found["application_id"] == "word-count"
        [store] = found["stores"]
        assert (store["name"], store["kind"], store["logged"], store["global"]) == ("words", "timestamped", True, False)
        source = found["nodes"][0]
        assert (source["kind"], source["topics"]) == ("source", ["lines"])
        assert any(node.get("stores") == ["words"] for node in found["nodes"])

    def test_a_missing_application_exits_with_the_code_of_its_error(self) -> None:
        found = call("describe", "nowhere.py")
        assert found.exit_code == 2
        assert "config: There is no file 'nowhere.py'." in found.output


class TestRun:
    def test_settings_and_bound_reach_the_application(self, sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
        given: dict[str, Any] = {}
        monkeypatch.setattr(App, "run", lambda self, **settings: given.update(settings, id=self.application_id))
        found = call("run", sample, "--until", "latest", "--set", "lanes=3", "--config", "own.toml")
        assert found.exit_code == 0, found.output
        assert given == {"id": "word-count", "until": "latest", "path": Path("own.toml"), "lanes": 3}

    def test_a_standby_is_a_setting(self, sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
        given: list[dict[str, Any]] = []
        monkeypatch.setattr(App, "run", lambda self, **settings: given.append(settings))
        assert call("run", sample, "--standby", "--set", "lanes=3").exit_code == 0
        assert call("run", sample).exit_code == 0
        assert given == [
            {"until": None, "path": None, "lanes": 3, "standby": True},
            {"until": None, "path": None},
        ]

    def test_the_exit_code_is_that_of_the_applications_error(self, sample: str, tmp_path: Path) -> None:
        missing = tmp_path / "missing.toml"
        assert call("run", sample, "--config", str(missing)).exit_code == 2

    def test_an_unknown_bound_is_refused(self, sample: str) -> None:
        found = call("run", sample, "--until", "tomorrow")
        assert found.exit_code == 2
        assert "--until: invalid value 'tomorrow'" in found.output


class TestReset:
    @pytest.mark.parametrize("arguments", [(), ("file.py", "--application-id", "x")])
    def test_exactly_one_way_to_name_the_application_is_accepted(self, arguments: tuple[str, ...]) -> None:
        found = call("reset", *arguments)
        assert found.exit_code == 2
        assert "either as FILE:APP or by --application-id" in found.output


class TestPlan:
    KEPT = Decision("words", Verdict.KEPT, "as it was committed")
    LOST = Decision("old", Verdict.LOST, "its changelog stays")
    REFUSED = Decision("table", Verdict.REFUSED, "value was String() and is Int64()")

    def test_nothing_lost(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert print_plan("app", Changes((self.KEPT,), ()), as_json=False) == 0
        assert "would lose nothing" in capsys.readouterr().out

    def test_a_lost_store_is_named_in_the_summary(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert print_plan("app", Changes((self.KEPT, self.LOST), ()), as_json=False) == 5
        assert "would leave behind: old." in capsys.readouterr().out

    def test_a_refusal_outweighs_a_loss(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert print_plan("app", Changes((self.LOST, self.REFUSED), ()), as_json=False) == 4
        assert print_plan("app", Changes((), (), ("topics are missing: in",)), as_json=False) == 4
        out = capsys.readouterr().out
        assert "would be refused" in out
        assert "refused: topics are missing: in" in out

    def test_as_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        code = print_plan("app", Changes((self.KEPT, self.LOST), (self.REFUSED,)), as_json=True)
        assert code == 4
        assert json.loads(capsys.readouterr().out) == {
            "application_id": "app",
            "stores": [
                {"name": "words", "verdict": "kept", "why": "as it was committed"},
                {"name": "old", "verdict": "lost", "why": "its changelog stays"},
            ],
            "sources": [{"name": "table", "verdict": "refused", "why": "value was String() and is Int64()"}],
            "refusals": [],
            "is_refused": True,
            "loses_state": True,
        }
