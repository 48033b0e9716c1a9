"""Global tables whose topics have records that cannot be read, get partitions, or are created again: on a real broker."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from penstock import App, StreamsBuilder
from penstock.errors import TopicError
from penstock.runtime.application import RunningApplication
from tests.jvm.runtime.cases import settings_of_a_case
from tests.jvm.runtime.test_life_cycle import run
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

pytestmark = pytest.mark.jvm

START_S = 120
PICKED_UP_S = 30
"""Changes of a topic must be noticed within this time."""

JOINED = """
from penstock import App, StreamsBuilder, dead_letter

builder = StreamsBuilder()
names = builder.global_table("named-names", value=int, store="names")
found = builder.stream("named-in", value=str).left_join(names, lambda asked, number: number, on=lambda key, asked: asked)
found.to("named-out", value=int)
app = App("named", builder.build(), deserialization_errors=dead_letter("named-letters"))
if __name__ == "__main__":
    app.run(until="latest")
"""


def test_letters_are_delivered_and_a_topic_that_is_made_anew_is_read_anew(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    for topic in ("named-names", "named-in", "named-out", "named-letters"):
        topics.create(servers, topic, config={"cleanup.policy": "compact"} if topic == "named-names" else None)
    path = tmp_path / "named.py"
    path.write_text(JOINED, encoding="utf-8")

    def ask(names: dict[str, bytes]) -> dict[bytes | None, bytes | None]:
        topics.produce(servers, "named-names", [topics.Sent(key=key.encode(), value=value) for key, value in names.items()])
        asked = [topics.Sent(key=key.encode(), value=key.encode()) for key in ("a", "b", "c")]
        topics.produce(servers, "named-in", asked)
        code, log = run(path, broker)
        assert code == 0, log
        return {record.key: record.value for record in topics.read(servers, "named-out")}

    assert ask({"a": bytes(8), "b": b"bad"}) == {b"a": bytes(8), b"b": None, b"c": None}
    assert [(letter.key, letter.value) for letter in topics.read(servers, "named-letters")] == [(b"b", b"bad")]

    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics(["named-names"])["named-names"].result(30)
    wait_until("the topic to be gone", lambda: "named-names" not in admin.list_topics(timeout=10).topics, 30)
    topics.create(servers, "named-names", config={"cleanup.policy": "compact"})
    assert ask({"b": bytes(8), "c": bytes(8)}) == {b"a": None, b"b": bytes(8), b"c": bytes(8)}


class Asking:
    """An application that looks up what it is asked, in a table that it reads while it runs."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.servers, self.directory, self.id = broker.bootstrap_servers, directory, f"asking-{uuid4().hex[:8]}"
        for topic in ("in", "names", "out"):
            topics.create(self.servers, f"{self.id}-{topic}")
        builder = StreamsBuilder(key=str, value=str)
        names = builder.global_table(f"{self.id}-names", store="names")
        asked = builder.stream(f"{self.id}-in").left_join(
            names, lambda asked, name: f"{asked}={name}", on=lambda key, asked: asked
        )
        asked.to(f"{self.id}-out")
        self.topology = builder.build()

    def start(self) -> RunningApplication:
        running = App(self.id, self.topology).start(**settings_of_a_case(self.servers, self.directory))
        assert running.wait_until_running(START_S)
        return running

    def name(self, partition: int = 0, **names: str) -> None:
        sent = [topics.Sent(key=key.encode(), value=name.encode(), partition=partition) for key, name in names.items()]
        topics.produce(self.servers, f"{self.id}-names", sent)

    def ask(self, *keys: str) -> list[str]:
        before = len(topics.read(self.servers, f"{self.id}-out"))
        topics.produce(self.servers, f"{self.id}-in", [topics.Sent(key=b"k", value=key.encode()) for key in keys])
        wait_until("answers", lambda: len(topics.read(self.servers, f"{self.id}-out")) >= before + len(keys), START_S)
        return [(record.value or b"").decode() for record in topics.read(self.servers, f"{self.id}-out")[before:]]


def test_partitions_of_its_topic_that_are_added_are_read(broker: Broker, tmp_path: Path) -> None:
    case = Asking(broker, tmp_path)
    case.name(a="first")
    with case.start():
        assert case.ask("a", "b") == ["a=first", "b=None"]
        admin, topic = AdminClient({"bootstrap.servers": case.servers}), f"{case.id}-names"
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(START_S)
        wait_until("leaders", lambda: len(topics.end_offsets(case.servers, topic)) == 2, START_S)
        case.name(partition=1, b="second")
        wait_until("the new row", lambda: case.ask("b") == ["b=second"], PICKED_UP_S, every_s=1)
        assert case.ask("a", "b") == ["a=first", "b=second"]


def test_a_topic_that_is_created_again_ends_it_before_old_and_new_rows_mix(broker: Broker, tmp_path: Path) -> None:
    case = Asking(broker, tmp_path)
    case.name(a="old", b="old")
    running = case.start()
    assert case.ask("a", "b") == ["a=old", "b=old"]
    topics.delete(case.servers, f"{case.id}-names")
    topics.create(case.servers, f"{case.id}-names")
    case.name(a="new", b="new", c="new", d="new")
    topics.produce(case.servers, f"{case.id}-in", [topics.Sent(key=b"k", value=key) for key in (b"a", b"b", b"d")])
    again = f"Topic '{case.id}-names' was deleted and created again while .*Start again: its global table is then read from"
    with pytest.raises(TopicError, match=again):
        running.wait(PICKED_UP_S)
    running.close()
    assert len(topics.read(case.servers, f"{case.id}-out")) == 2  # nothing was joined with both
    with case.start():
        wait_until("answers", lambda: len(topics.read(case.servers, f"{case.id}-out")) == 5, START_S)
    assert [record.value for record in topics.read(case.servers, f"{case.id}-out")[2:]] == [b"a=new", b"b=new", b"d=new"]
