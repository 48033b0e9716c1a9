"""Dead letters on a real broker: each is replayed exactly once, however many replays run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from penstock import Failure, RecordMetadata
from penstock.cli.commands import commands
from penstock.errors import FencedError
from penstock.handlers import FailureKind
from penstock.kafka import dead_letters
from penstock.kafka.dead_letters import DeadLetters, Replayer, ledger_topic
from penstock.letters import Choice, Letter, Rules, Target, failure_headers
from penstock.records import Headers
from tests.jvm.kafka.live_topics import config, new_topic, wait_until_settled
from verification.harness import topics
from verification.harness.processes import ROOT, wait_until
from verification.harness.topics import Received, Sent

pytestmark = pytest.mark.jvm


class Place:
    """A source topic with records, and a dead-letter topic with letters about some of them."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.application = f"app-{uuid4().hex[:8]}"
        self.source = new_topic(servers, "source", partitions=2)
        self.dead = new_topic(servers, "dead", partitions=2)

    def write(self, *letters: Sent) -> None:
        topics.produce(self.servers, self.dead, letters)

    def letter(self, number: int, **options: Any) -> Sent:
        """A letter about record `number` of partition 1 by default."""
        kind, node = options.pop("kind", FailureKind.PROCESSING), options.pop("node", "map")
        source = options.pop("source", RecordMetadata(self.source, 1, number))
        read_from, own = options.pop("read_from", self.source), options.pop("headers", (("trace", b"7"),))
        key, value = b"k%d" % number, options.pop("value", b"v%d" % number)
        error = ValueError(f"bad {number}")
        failure = Failure(kind, error, node, source, key, value, 1_000 + number, own, read_from)
        added = failure_headers(failure, error, self.application, 3, 2_000 + number)
        return Sent(key=key, value=value, partition=number % 2, timestamp=1_000 + number, headers=own + added)

    def replayer(self, letters: DeadLetters, *, is_dry: bool = False) -> Replayer:
        rules = Rules(application=self.application, target=Target.SOURCE, max_attempts=3, partitions=letters.partitions)
        return Replayer(config(self.servers), letters, rules, is_dry=is_dry)

    def run(self, *arguments: str) -> str:
        """Run the command in this process."""
        done = CliRunner().invoke(
            commands, ["dlq", *arguments, "--set", f"bootstrap_servers={self.servers}"], env={"COLUMNS": "300", "TERM": "dumb"}
        )
        assert done.exit_code == 0, done.output
        return done.output

    def open_transactions(self) -> list[str]:
        """Those of its replays; other tests may leave some of their own."""
        return [name for name in topics.open_transactions(self.servers) if name.startswith(self.application)]

    def replayed(self) -> list[Received]:
        wait_until_settled(self.servers, self.source)
        return topics.read(self.servers, self.source)


@pytest.fixture
def place(servers: str) -> Place:
    return Place(servers)


def own(headers: Sequence[tuple[str, bytes | None]]) -> Headers:
    return tuple(header for header in headers if not header[0].startswith("__penstock.replay."))


def test_a_replay_sends_the_original_record_to_its_source_partition(place: Place) -> None:
    place.write(place.letter(4), place.letter(5, value=None, headers=()))
    dry = place.run("replay", place.dead)
    assert "2 of 2 letters would be replayed." in dry
    assert f"2 to {place.source}" in dry
    assert place.replayed() == []
    with DeadLetters(config(place.servers), place.dead) as letters:
        assert letters.known(ledger_topic(place.application, place.dead)) is None
    assert "2 of 2 letters replayed." in place.run("replay", place.dead, "--yes")
    four, five = sorted(place.replayed(), key=lambda record: record.timestamp)
    assert (four.partition, four.key, four.value, four.timestamp) == (1, b"k4", b"v4", 1_004)
    assert own(four.headers) == (("trace", b"7"),)
    assert dict(four.headers)["__penstock.replay.letter"] == f"{place.dead}-0-0".encode()
    assert dict(four.headers)["__penstock.replay.attempt"] == b"1"
    assert (five.value, own(five.headers)) == (None, ())


def test_replayed_letters_are_not_replayed_again_and_others_can_be_later(place: Place) -> None:
    place.write(*(place.letter(number, node="odd" if number % 2 else "even") for number in range(10)))
    assert "5 of 5 letters replayed" in place.run("replay", place.dead, "--yes", "--node", "odd")
    assert "2 of 2 letters replayed" in place.run("replay", place.dead, "--yes", "--offset", "0:1-2")
    assert "1 replayed" in place.run("replay", place.dead, "--yes", "--limit", "1")
    last = place.run("replay", place.dead, "--yes")
    assert "2 of 10 letters replayed" in last
    assert "8 skipped: already replayed" in last
    assert "0 of 10 letters replayed" in place.run("replay", place.dead, "--yes")
    assert sorted(record.key or b"" for record in place.replayed()) == [b"k%d" % number for number in range(10)]
    ledger = ledger_topic(place.application, place.dead)
    wait_until_settled(place.servers, ledger)
    assert len({record.key for record in topics.read(place.servers, ledger)}) == 10


def test_a_letter_without_the_original_record_is_looked_up_in_its_source(place: Place) -> None:
    source = new_topic(place.servers, "original")
    topics.produce(place.servers, source, [Sent(key=b"a", value=b"original", timestamp=77, headers=(("h", b"1"),))])
    there, gone = RecordMetadata(source, 0, 0), RecordMetadata(source, 0, 9)
    place.write(
        place.letter(0, source=there, read_from="by-repartition"), place.letter(1, source=gone, read_from="by-repartition")
    )
    output = place.run("replay", place.dead, "--yes")
    assert "1 of 2 letters replayed" in output
    assert "1 skipped: it lacks the record's original content, and the source topic no longer has the record" in output
    wait_until_settled(place.servers, source)
    first, second = topics.read(place.servers, source)
    assert (second.key, second.value, second.timestamp, own(second.headers)) == (b"a", b"original", 77, (("h", b"1"),))
    assert first.offset == 0


def test_letters_that_cannot_be_replayed_are_skipped_with_a_reason(place: Place) -> None:
    again = (("__penstock.replay.letter", f"{place.dead}-0-0".encode()), ("__penstock.replay.attempt", b"3"))
    place.write(
        place.letter(0, kind=FailureKind.LATE),
        place.letter(1, source=None, read_from=None),
        place.letter(2, headers=again),
        place.letter(3, source=RecordMetadata("nowhere", 0, 1)),
    )
    output = place.run("replay", place.dead, "--yes")
    assert "0 of 4 letters replayed" in output
    for why in ("a late record stays late", "a timer or a cache", "as --max-attempts allows", "'nowhere' does not exist"):
        assert f"1 skipped: {why}" in output or why in output
    assert "1 of 4 letters replayed" in place.run("replay", place.dead, "--yes", "--max-attempts", "4")
    assert dict(place.replayed()[0].headers)["__penstock.replay.attempt"] == b"4"


def test_of_two_concurrent_replays_the_first_is_fenced_and_nothing_is_sent_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_PER_TRANSACTION", 3)
    place.write(*(place.letter(number) for number in range(20)))
    settings = config(place.servers)
    second_done: list[int] = []

    def take_over(tally: Any) -> None:
        """Run a part of a second replay in the middle of the first."""
        if not second_done:
            with DeadLetters(settings, place.dead) as others:
                second = place.replayer(others)
                second_done.append(second.run(Choice(), limit=6).replayed)
                second.close()

    with DeadLetters(settings, place.dead) as letters:
        first = place.replayer(letters)
        with pytest.raises(FencedError, match="Another replay of this topic"):
            first.run(Choice(), on_progress=take_over)
        first.close()
    assert second_done == [6]
    assert len(place.replayed()) == 9
    assert "11 of 20 letters replayed" in place.run("replay", place.dead, "--yes")
    assert sorted(record.key or b"" for record in place.replayed()) == sorted(b"k%d" % number for number in range(20))
    assert not place.open_transactions()


def test_a_replay_continues_with_a_new_producer_after_connection_trouble(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letters, "LETTERS_PER_TRANSACTION", 3)
    place.write(*(place.letter(number) for number in range(10)))
    with DeadLetters(config(place.servers), place.dead) as letters:
        replayer = place.replayer(letters)

        def trouble(tally: Any) -> None:
            assert replayer._publisher is not None
            replayer._publisher._producer.had_trouble = True

        assert replayer.run(Choice(), on_progress=trouble).replayed == 10
        replayer.close()
    assert sorted(record.key or b"" for record in place.replayed()) == [b"k%d" % number for number in range(10)]


@pytest.mark.parametrize("fault", ["replay.before_commit:2:kill", "replay.after_commit:2:kill"])
def test_a_killed_replay_is_completed_by_the_next(place: Place, tmp_path: Path, fault: str) -> None:
    place.write(*(place.letter(number) for number in range(1_200)))
    killed = command(place, tmp_path, fault)
    assert killed.wait(60) == -signal.SIGKILL
    assert command(place, tmp_path).wait(60) == 0
    assert sorted(record.key or b"" for record in place.replayed()) == sorted(b"k%d" % number for number in range(1_200))


def test_a_replay_that_receives_sigterm_ends_between_transactions(place: Place, tmp_path: Path) -> None:
    place.write(*(place.letter(number) for number in range(1_200)))
    replay = command(place, tmp_path, "replay.after_commit:1:sleep=2")
    wait_until("the first transaction is committed", lambda: len(topics.read(place.servers, place.source)) == 500)
    replay.terminate()
    assert replay.wait(30) == 0
    assert len(place.replayed()) == 500
    assert not place.open_transactions()


def command(place: Place, directory: Path, fault: str = "") -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "PENSTOCK_BOOTSTRAP_SERVERS": place.servers}
    if fault:
        environment |= {"PENSTOCK_FAULT": fault, "PENSTOCK_FAULT_DIR": str(directory / "faults")}
    run = [sys.executable, "-m", "penstock.cli", "dlq", "replay", place.dead, "--yes"]
    return subprocess.Popen(run, env=environment, cwd=directory, stdout=subprocess.DEVNULL)


def test_letters_are_listed_and_shown(place: Place) -> None:
    place.write(place.letter(0), place.letter(1, node="other", value=b"\xff\x00\x1b[2J"), place.letter(2))
    groups = json.loads(place.run("ls", place.dead, "--json"))
    kinds = [(group["letters"], group["application"], group["node"], group["error"], group["source_topic"]) for group in groups]
    assert kinds[0] == (2, place.application, "map", "ValueError", place.source)
    assert all(str(part) in place.run("ls", place.dead) for part in kinds[0])
    shown = place.run("show", place.dead, "--partition", "1", "--offset", "0")
    assert "ff 00 1b 5b 32 4a" in shown
    assert "ValueError: bad 1" in shown
    assert f"{place.source}-1 at offset 1" in shown
    with DeadLetters(config(place.servers), place.dead) as letters:
        found: list[Letter] = list(letters.letters(Choice(node="other")))
        assert [letter.value for letter in found] == [b"\xff\x00\x1b[2J"]
