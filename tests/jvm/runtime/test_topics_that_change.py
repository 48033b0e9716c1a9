"""Source topics that change while an application runs and between its starts, on a real broker."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from typer.testing import CliRunner

from penstock import App, Store, StreamsBuilder, Topology
from penstock.cli.commands import commands
from penstock.config import Config
from penstock.errors import StateError, TopicError
from penstock.handlers import ErrorHandlers
from penstock.history.rehearsal import rehearse
from penstock.runtime.application import RunningApplication
from penstock.topology.plan import Verdict
from tests.jvm.runtime.cases import settings_of_a_case
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until
from verification.harness.topics import Sent

pytestmark = pytest.mark.jvm

START_S = 120
PICKED_UP_S = 30
"""New records must be read within this time."""


class Case:
    """A separate application that counts by key, with the topics it reads."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.servers = broker.bootstrap_servers
        self.id = f"topics-{uuid4().hex[:8]}"
        self.directory = directory
        self.admin = AdminClient({"bootstrap.servers": self.servers})
        topics.create(self.servers, self.topic("out"))

    def topic(self, name: str) -> str:
        return f"{self.id}-{name}"

    def create(self, name: str, partitions: int = 1) -> None:
        topics.create(self.servers, self.topic(name), partitions)

    def delete(self, name: str) -> None:
        self.admin.delete_topics([self.topic(name)])[self.topic(name)].result(START_S)
        wait_until("the topic is gone", lambda: self.topic(name) not in topics.names(self.servers), START_S)

    def send(self, name: str, *keys: str, partition: int = 0) -> None:
        sent = [Sent(key=key.encode(), value=b"v", partition=partition) for key in keys]
        topics.produce(self.servers, self.topic(name), sent)

    def counting(self, *names: str, reset: str | None = None, pattern: bool = False) -> Topology:
        builder = StreamsBuilder()
        for name in names:
            read: Any = re.compile(f"{self.id}-{name}") if pattern else self.topic(name)
            counts = (
                builder.stream(read, value=str, reset=reset)
                .group_by_key()
                .count(store=Store(f"counts-of-{name.rstrip('.*-')}", caching=False))
            )
            counts.to_stream().to(self.topic("out"), value=int)
        return builder.build()

    @property
    def settings(self) -> dict[str, Any]:
        return settings_of_a_case(self.servers, self.directory)

    def start(self, topology: Topology, **settings: Any) -> RunningApplication:
        running = App(self.id, topology).start(**{**self.settings, **settings})
        assert running.wait_until_running(START_S)
        return running

    def catch_up(self, topology: Topology, **settings: Any) -> RunningApplication:
        with App(self.id, topology).start(until="latest", **{**self.settings, **settings}) as running:
            assert running.wait(START_S)
        return running

    def plan(self, topology: Topology) -> Any:
        return rehearse(self.id, topology, ErrorHandlers(), Config.load(environment={}, **self.settings))

    def reset(self, *arguments: str) -> str:
        given = ["reset", "--application-id", self.id, "--set", f"bootstrap_servers={self.servers}", "--set", "shards=4"]
        given += ["--set", f"state_dir={self.directory / 'state'}", *arguments]
        done = CliRunner().invoke(commands, given, env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.output

    def counts(self) -> Mapping[str, int]:
        """The last count of each key, and that no count is missing on the way there."""
        seen: dict[str, int] = {}
        for record in topics.read(self.servers, self.topic("out")):
            key, count = (record.key or b"").decode(), int.from_bytes(record.value or b"", "big")
            assert count == seen.get(key, 0) + 1, f"{key} comes to {count} after {seen.get(key, 0)}"
            seen[key] = count
        return seen

    def is_read(self, name: str, end: int) -> bool:
        """Whether the only partition of a topic is read to its end."""
        offsets = topics.group_offsets(self.servers, self.id)
        return bool(offsets) and offsets[self.topic(name), 0][0] == end

    def wait_for(self, expected: Mapping[str, int], timeout_s: float = START_S) -> None:
        wait_until(f"counts {expected}", lambda: self.counts() == expected, timeout_s, every_s=0.3)


@pytest.fixture
def case(broker: Broker, tmp_path: Path) -> Case:
    return Case(broker, tmp_path)


class TestWhileItRuns:
    def test_partitions_that_are_added_are_read_from_their_beginning(self, case: Case) -> None:
        case.create("in", 2)
        topology = case.counting("in", reset="latest")
        with case.start(topology) as running:
            case.send("in", "a")
            case.send("in", "b", partition=1)
            case.wait_for({"a": 1, "b": 1})
            case.admin.create_partitions([NewPartitions(case.topic("in"), 4)])[case.topic("in")].result(START_S)
            wait_until("leaders", lambda: len(topics.end_offsets(case.servers, case.topic("in"))) == 4, START_S)
            began = time.monotonic()
            case.send("in", "c", "c", partition=2)
            case.send("in", "d", "b", partition=3)
            case.send("in", "a")
            case.wait_for({"a": 2, "b": 2, "c": 2, "d": 1}, PICKED_UP_S)
            assert time.monotonic() - began < PICKED_UP_S
            case.send("in", "d", partition=3)
            case.wait_for({"a": 2, "b": 2, "c": 2, "d": 2})
            assert {place[1] for place in running.recorder.partitions} == {0, 1, 2, 3}
        case.send("in", "c", partition=2)
        case.catch_up(topology)
        assert case.counts() == {"a": 2, "b": 2, "c": 3, "d": 2}

    def test_partitions_that_were_added_while_it_did_not_run_are_read_from_their_beginning(self, case: Case) -> None:
        case.create("in")
        case.send("in", "before")
        topology = case.counting("in", reset="latest")
        with case.start(topology):
            case.send("in", "a")
            case.wait_for({"a": 1})
        case.admin.create_partitions([NewPartitions(case.topic("in"), 2)])[case.topic("in")].result(START_S)
        wait_until("leaders", lambda: len(topics.end_offsets(case.servers, case.topic("in"))) == 2, START_S)
        case.send("in", "b", "a", partition=1)
        [change] = case.plan(topology).sources
        assert (change.verdict, change.why) == (
            Verdict.KEPT,
            "resumes from the committed offsets; new partitions start at their earliest record: 1",
        )
        case.catch_up(topology)
        assert case.counts() == {"a": 2, "b": 1}

    def test_topics_that_match_a_pattern_are_read_from_their_beginning(self, case: Case) -> None:
        case.create("in-1")
        topology = case.counting("in-.*", reset="latest", pattern=True)
        with case.start(topology):
            case.send("in-1", "a")
            case.wait_for({"a": 1})
            case.create("in-2", 2)
            case.send("in-2", "b", "a", partition=1)
            case.wait_for({"a": 2, "b": 1}, PICKED_UP_S)
        case.create("in-3")
        case.send("in-3", "c")
        case.catch_up(topology)
        assert case.counts() == {"a": 2, "b": 1, "c": 1}

    def test_a_recreated_topic_ends_the_application_and_a_reset_of_its_offsets_is_the_cure(self, case: Case) -> None:
        case.create("in")
        topology = case.counting("in")
        running = case.start(topology)
        case.send("in", "a", "a")
        case.wait_for({"a": 2})
        case.delete("in")
        case.create("in")
        with pytest.raises(TopicError, match=f"Topic '{case.topic('in')}' was deleted and created again while .* running"):
            running.wait(PICKED_UP_S)
        running.close()
        case.send("in", "b", "a")
        with pytest.raises(StateError, match=r"perhaps with their topics.*--keep-state"):
            case.catch_up(topology)
        assert case.plan(topology).is_refused
        case.reset("--keep-state", "--to-earliest", case.topic("in"), "--yes")
        case.catch_up(topology)
        assert case.counts() == {"a": 3, "b": 1}

    def test_a_topic_that_is_deleted_ends_it(self, case: Case) -> None:
        case.create("in")
        case.create("other")
        running = case.start(case.counting("in", "other"))
        case.send("in", "a")
        case.wait_for({"a": 1})
        case.delete("other")
        with pytest.raises(TopicError, match=f"Topic '{case.topic('other')}' was deleted while the application was running"):
            running.wait(START_S)
        running.close()


class TestGoingBack:
    def test_a_source_that_was_removed_for_a_while_resumes_where_it_stopped(self, case: Case) -> None:
        case.create("orders")
        case.create("refunds")
        both, one = case.counting("orders", "refunds"), case.counting("orders")
        case.send("orders", "o")
        case.send("refunds", "r")
        case.catch_up(both)
        case.send("orders", "o")
        case.send("refunds", "r", "r")
        case.catch_up(one)
        assert case.counts() == {"o": 2, "r": 1}
        changes = {change.name.removeprefix(f"{case.id}-"): change for change in case.plan(both).sources}
        assert changes["refunds"].verdict is Verdict.KEPT
        assert "resumes where it stopped at epoch" in changes["refunds"].why
        case.catch_up(both)
        assert case.counts() == {"o": 2, "r": 3}
        case.send("refunds", "r")
        case.catch_up(case.counting("refunds"))  # and a version that reads nothing of what the last one read
        case.send("orders", "o")
        case.catch_up(one)
        assert case.counts() == {"o": 3, "r": 4}

    def test_all_sources_may_be_renamed(self, case: Case) -> None:
        def reading(topic: str) -> Topology:
            builder = StreamsBuilder()
            counted = builder.stream(case.topic(topic), value=str).group_by_key().count(store=Store("counts", caching=False))
            counted.to_stream().to(case.topic("out"), value=int)
            return builder.build()

        case.create("old")
        case.create("new")
        case.send("old", "a", "b")
        case.catch_up(reading("old"))
        case.send("new", "a")
        case.catch_up(reading("new"))
        assert case.counts() == {"a": 2, "b": 1}


class TestLostChangelogs:
    def test_a_deleted_changelog_is_refused_by_a_plan_and_by_a_start(self, case: Case) -> None:
        case.create("in")
        case.send("in", "a")
        topology = case.counting("in")
        case.catch_up(topology)
        assert not case.plan(topology).is_refused
        changelog = f"{case.id}-counts-of-in-changelog"
        case.admin.delete_topics([changelog])[changelog].result(START_S)
        wait_until("the topic is gone", lambda: changelog not in topics.names(case.servers), START_S)
        refused = f"Topic '{changelog}' was deleted and created again since offsets were committed"
        assert [reason for reason in case.plan(topology).refusals if refused in reason]
        with pytest.raises(TopicError, match=refused):
            case.catch_up(topology)


class TestLostInput:
    def delete_records(self, case: Case, before: int) -> None:
        place = TopicPartition(case.topic("in"), 0, before)
        case.admin.delete_records([place])[place].result(START_S)

    def test_a_start_with_lost_input_is_refused_or_skips_it(self, case: Case) -> None:
        case.create("in")
        case.send("in", "a")
        topology = case.counting("in")
        case.catch_up(topology)
        case.send("in", "b", "b", "c")
        self.delete_records(case, 3)
        with pytest.raises(TopicError, match=r"records from offset 1 to 3 were deleted .*on_lost_input = continue"):
            case.catch_up(topology)
        running = case.catch_up(topology, on_lost_input="continue")
        assert case.counts() == {"a": 1, "c": 1}
        assert running.recorder.lost == {(case.topic("in"), 0): 2}

    def test_an_epoch_whose_records_are_lost_continues_without_them(self, case: Case) -> None:
        """The first epochs have what the driver had read by then; of the rest, only the last records are left."""
        records, left = 200, 50
        case.create("in")
        value = b"v" * 100_000  # so that the driver cannot read all of them ahead
        topics.produce(case.servers, case.topic("in"), [Sent(key=b"a", value=value) for _ in range(records)])
        hold = case.directory / "hold"
        hold.touch()
        path = str(hold)

        def wait(_: str, value: str) -> bool:
            deadline = time.monotonic() + 60
            while Path(path).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            return True

        builder = StreamsBuilder()
        held = builder.stream(case.topic("in"), value=str).filter(wait)
        held.group_by_key().count(store=Store("counts", caching=False)).to_stream().to(case.topic("out"), value=int)
        ahead = {"queued.max.messages.kbytes": "1"}
        with case.start(builder.build(), on_lost_input="continue", max_epoch_records=10, kafka=ahead) as running:
            wait_until("the first epoch is in hand", lambda: running.recorder.current is not None, START_S)
            self.delete_records(case, records - left)
            hold.unlink()
            wait_until("the rest is read", lambda: case.is_read("in", records), START_S)
            [lost] = running.recorder.lost.values()
            assert sum(case.counts().values()) + lost == records
            assert lost > left


class TestReset:
    def test_offsets_move_and_the_state_is_kept(self, case: Case) -> None:
        case.create("in", 2)
        case.send("in", "a", "a")
        case.send("in", "b", partition=1)
        topology = case.counting("in")
        case.catch_up(topology)
        again = (f"--to-offset={case.topic('in')}:0=1", f"--to-latest={case.topic('in')}:1")
        shown = case.reset("--keep-state", *again)
        assert "reads 1 offsets again" in shown
        assert "Nothing was changed" in shown
        case.catch_up(topology)
        assert case.counts() == {"a": 2, "b": 1}
        case.reset("--keep-state", *again, "--yes")
        case.catch_up(topology)
        assert case.counts() == {"a": 3, "b": 1}

    def test_offsets_move_and_the_state_is_deleted(self, case: Case) -> None:
        case.create("in")
        case.send("in", "a", "a", "a")
        topology = case.counting("in")
        case.catch_up(topology)
        case.reset("--to-offset", f"{case.topic('in')}=2", "--yes")
        case.send("in", "a")
        case.catch_up(topology)
        counted = [int.from_bytes(record.value or b"", "big") for record in topics.read(case.servers, case.topic("out"))]
        assert counted == [1, 2, 3, 1, 2]

    def test_state_survives_the_loss_of_offsets(self, case: Case) -> None:
        case.create("in")
        case.send("in", "a", "a")
        topology = case.counting("in")
        case.catch_up(topology)
        case.admin.delete_consumer_groups([case.id])[case.id].result(START_S)
        case.send("in", "a")
        case.reset("--keep-state", "--to-offset", f"{case.topic('in')}=2", "--yes")
        case.catch_up(topology)
        assert case.counts() == {"a": 3}
