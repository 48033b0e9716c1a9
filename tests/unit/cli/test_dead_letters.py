"""The `dlq` commands: what they request, refuse and print; the letters come from a list."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import Result

from penstock.cli import dead_letters
from penstock.cli.applications import load_app
from penstock.config import Config
from penstock.errors import BrokerError, FencedError
from penstock.handlers import FailureKind
from penstock.kafka.dead_letters import Tally
from penstock.kafka.topics import Topic
from penstock.letters import Choice, Ledger, Letter, Refused, Rules, Target, judged
from penstock.records import RecordMetadata
from tests.unit.cli.calling import call
from tests.unit.letters.letters import letter

if TYPE_CHECKING:
    from typing_extensions import Self


class FakeLetters:
    """A dead-letter topic in memory."""

    content: tuple[Letter, ...] = ()

    def __init__(self, config: Any, topic: str) -> None:
        self.topic = Topic(topic, "id", 1, {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def letters(self, choice: Choice) -> Iterator[Letter]:
        return filter(choice.takes, self.content)

    def partitions(self, topic: str) -> int | None:
        return 3 if topic == "in" else None


class FakeReplayer:
    """Decides like the real one, but sends nothing."""

    made: list[FakeReplayer] = []  # noqa: RUF012 - emptied by a fixture
    failure: Exception | None = None

    def __init__(self, config: Any, letters: FakeLetters, rules: Rules, *, is_dry: bool) -> None:
        self.letters, self.rules, self.is_dry = letters, rules, is_dry
        self.choice: Choice | None = None
        self.is_closed = False
        self.made.append(self)

    def run(self, choice: Choice, limit: int | None, is_ending: Any, on_progress: Any) -> Tally:
        self.choice = choice
        if self.failure is not None:
            raise self.failure
        assert not is_ending()
        signal.raise_signal(signal.SIGTERM)
        assert is_ending()
        tally, ledger = Tally(), Ledger("id")
        for each in self.letters.letters(choice):
            tally.chosen += 1
            verdict = judged(each, ledger, self.rules)
            if isinstance(verdict, Refused):
                tally.refuse(verdict)
            else:
                ledger.note(verdict)
                tally.take(verdict)
                tally.replayed += not self.is_dry
        on_progress(tally)
        return tally

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(dead_letters, "DeadLetters", FakeLetters)
    monkeypatch.setattr(dead_letters, "Replayer", FakeReplayer)
    monkeypatch.setattr(FakeReplayer, "made", [])
    monkeypatch.setattr(FakeReplayer, "failure", None)
    monkeypatch.setattr(FakeLetters, "content", ())
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", "nowhere:1")
    monkeypatch.chdir(tmp_path)


def written(monkeypatch: pytest.MonkeyPatch, *letters: Letter) -> None:
    monkeypatch.setattr(FakeLetters, "content", letters)


def run(*arguments: str) -> Result:
    return call("dlq", *arguments)


class TestList:
    def test_groups_are_read_on_a_screen_of_80_columns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        node = "KSTREAM-TRANSFORMVALUES-0000000002"
        written(monkeypatch, letter(0, node=node), letter(1, time_ms=61_000, node=node), letter(2, node="other"))
        shown = call("dlq", "ls", "dead", COLUMNS="80").stdout
        assert shown.splitlines() == [
            "2 letters of app",
            "  node    KSTREAM-TRANSFORMVALUES-0000000002",
            "  error   ValueError",
            "  source  in",
            "  failed  1970-01-01T00:00:01.000Z to 1970-01-01T00:01:01.000Z",
            "",
            "1 letter of app",
            "  node    other",
            "  error   ValueError",
            "  source  in",
            "  failed  1970-01-01T00:00:01.000Z",
        ]
        assert max(map(len, shown.splitlines())) <= 80

    def test_a_name_from_a_record_is_one_line(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(monkeypatch, letter(0, node="map\n  error   none"))
        assert "  node    map\\n  error   none" in run("ls", "dead").stdout.splitlines()

    def test_a_name_from_a_record_cannot_control_the_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(monkeypatch, letter(0, node="\x1b[2J\u202egone [bold]kept[/bold]"))
        found = run("ls", "dead").stdout
        assert not {"\x1b", "\u202e"} & set(found)
        assert "\\x1b[2J\\u202egone [bold]kept[/bold]" in found

    def test_groups_as_json(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(monkeypatch, letter(0))
        [group] = json.loads(run("ls", "dead", "--json").stdout)
        assert (group["letters"], group["node"], group["first"]) == (1, "map", "1970-01-01T00:00:01.000Z")

    def test_a_topic_without_letters_says_so(self) -> None:
        assert run("ls", "dead").stdout == "Topic 'dead' has no dead letters.\n"


class TestShow:
    def test_a_letter_in_full(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(monkeypatch, letter(0), letter(7, headers=(("trace", b"1"), ("none", None))))
        shown = run("show", "dead", "--partition", "0", "--offset", "7").stdout
        for line in (
            "letter      dead-0 at offset 7",
            "from        in-2 at offset 7",
            "application app, epoch 3",
            "node        map",
            "error       ValueError: bad",
            "key         k",
            "value       v",
            "header      trace: 1",
            "header      none: (none)",
            "    ValueError: bad",
        ):
            assert line in shown.splitlines()

    def test_binary_data_is_hexadecimal_and_control_characters_are_escaped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        evil = letter(error=ValueError("\x1b[2J"), node="\x07", headers=(("\x1b]0;x", b"\x00\x1b"),))
        long = Letter(RecordMetadata("dead", 0, 1), b"\xff", b"a" * 5_000, 5, ())
        written(monkeypatch, evil, long)
        shown = run("show", "dead", "--limit", "2").stdout
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "00 1b" in shown
        assert "\\x1b[2J" in shown
        assert "key         ff" in shown
        assert "… and 904 more bytes" in shown
        assert "(differs from the source record)" in shown
        assert "from        a timer or a cache" in shown

    def test_an_incomplete_place_and_one_without_a_letter_are_refused(self) -> None:
        assert "Give both" in run("show", "dead", "--partition", "0").stderr
        none = run("show", "dead", "--partition", "0", "--offset", "9")
        assert (none.exit_code, none.stderr) == (2, "config: dead-0 has no letter at offset 9.\n")
        assert run("show", "dead").stderr == "config: Topic 'dead' has no dead letters.\n"


class TestReplay:
    def test_without_yes_it_only_prints_what_it_would_do(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(monkeypatch, letter(0), letter(1, kind=FailureKind.LATE))
        output = run("replay", "dead")
        assert output.exit_code == 0
        assert output.stdout.splitlines() == [
            "1 of 2 letters would be replayed.",
            "  1 to in",
            "  1 skipped: a late record stays late: the watermark never goes back (the first is dead-0 at offset 1)",
            "Nothing was sent. Add --yes to replay them.",
        ]
        [replayer] = FakeReplayer.made
        assert (replayer.is_dry, replayer.is_closed) == (True, True)
        assert (replayer.rules.application, replayer.rules.target, replayer.rules.max_attempts) == ("app", Target.SOURCE, 3)

    def test_with_yes_it_replays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(monkeypatch, letter(0))
        output = run("replay", "dead", "--yes")
        assert output.stdout.splitlines() == ["1 of 1 letters replayed.", "  1 to in"]
        assert output.stderr == "1 replayed, 1 checked\n"
        assert not FakeReplayer.made[0].is_dry

    def test_all_filters_are_passed_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(monkeypatch, letter(0))
        filters = ["--node", "map", "--error", "ValueError", "--source-topic", "in", "--offset", "0:0-9", "--offset", "1:5"]
        times = ["--since", "1970-01-01T00:00:01Z", "--until", "1970-01-01T00:00:02Z"]
        assert run("replay", "dead", *filters, *times, "--max-attempts", "9").exit_code == 0
        choice = FakeReplayer.made[0].choice
        assert choice is not None
        assert (choice.node, choice.error, choice.source_topic) == ("map", "ValueError", "in")
        assert (choice.since_ms, choice.until_ms, choice.spans) == (1_000, 2_000, ((0, 0, 9), (1, 5, 5)))
        assert FakeReplayer.made[0].rules.max_attempts == 9

    @pytest.mark.parametrize(
        ("arguments", "code", "why"),
        [
            (["--since", "yesterday"], 3, "--since: invalid instant 'yesterday'"),
            (["--offset", "x"], 2, "--offset: expected partition:offset"),
            (["--to", "node"], 2, "--to node needs FILE:APP"),
            (["nowhere.py:app"], 2, "There is no file 'nowhere.py'."),
            ([], 2, "Add --application-id"),
        ],
    )
    def test_invalid_arguments_are_refused_with_the_cure(self, arguments: list[str], code: int, why: str) -> None:
        output = run("replay", "dead", *arguments)
        assert output.exit_code == code
        assert why in output.stderr

    @pytest.mark.parametrize(("failure", "code"), [(FencedError("another replay"), 20), (BrokerError("gone"), 22)])
    def test_the_exit_code_is_that_of_the_failure(self, monkeypatch: pytest.MonkeyPatch, failure: Any, code: int) -> None:
        written(monkeypatch, letter(0))
        monkeypatch.setattr(FakeReplayer, "failure", failure)
        output = run("replay", "dead", "--yes")
        assert (output.exit_code, output.stderr) == (code, f"{failure.code}: {failure}\n")
        assert FakeReplayer.made[0].is_closed

    def test_letters_of_other_applications_are_skipped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        written(monkeypatch, letter(0), letter(1, application="other"))
        assert "1 skipped: it belongs to application 'other'" in run("replay", "dead").stdout
        assert "1 skipped: it belongs to application 'app'" in run("replay", "dead", "--application-id", "other").stdout


APP = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
stream = builder.stream("in", value=str, name="in")
stream.map_values(str.upper, name="map").to("out")
stream.flat_map_values(str.split, name="words").map_values(len, name="lengths").to("lengths")
builder.global_table("global", value=str)
app = App("app", builder.build())
"""


class TestSettings:
    @pytest.mark.parametrize("command", [("ls",), ("show",), ("replay", "--application-id", "app")])
    def test_settings_are_given_as_for_every_command(self, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]) -> None:
        seen: list[Config] = []

        class Noting(FakeLetters):
            def __init__(self, config: Config, topic: str) -> None:
                super().__init__(config, topic)
                seen.append(config)

        monkeypatch.setattr(dead_letters, "DeadLetters", Noting)
        Path("own.toml").write_text('bootstrap_servers = "file:1"\n[kafka]\n"client.id" = "me"\n')
        run(*command, "dead", "--config", "own.toml", "--set", "bootstrap_servers=given:1")
        [config] = seen
        assert config.kafka["bootstrap.servers"] == "given:1"
        assert config.kafka["client.id"] == "me"

    def test_a_plain_text_secret_is_refused(self) -> None:
        output = run("ls", "dead", "--set", "kafka.sasl.password=x")
        assert output.exit_code == 2
        assert "Write env:NAME or file:PATH" in output.stderr


class TestIntoNodes:
    @pytest.fixture(autouse=True)
    def file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "app.py").write_text(APP)
        monkeypatch.delitem(sys.modules, "app", raising=False)  # left by another test

    def test_the_topology_determines_which_nodes_can_be_replayed_into(self, monkeypatch: pytest.MonkeyPatch) -> None:
        outside = letter(2, source=RecordMetadata("elsewhere", 0, 0))
        written(monkeypatch, letter(0), letter(1, node="lengths", source=RecordMetadata("in", 0, 8)), outside)
        output = run("replay", "dead", "app.py:app", "--to", "node").stdout
        assert "1 of 3 letters would be replayed." in output
        assert "1 to in, into map only" in output
        assert "1 skipped: it cannot be replayed into 'lengths' only: 'words', between 'in' and 'lengths'" in output
        assert "'elsewhere' does not exist" in output

    def test_records_of_a_global_table_cannot_be_replayed_into_a_node(self) -> None:
        found = dead_letters._obstacle(load_app("app.py:app").topology)
        assert "is the topic of a global table" in str(found("global", "x"))
        assert found("in", "map") is None

    def test_the_application_and_its_id_must_match(self) -> None:
        output = run("replay", "dead", "app.py:app", "--application-id", "other")
        assert "--application-id is 'other', but the application is 'app'" in output.stderr
        assert "has no 'nobody'" in run("replay", "dead", "app.py:nobody").stderr
