"""A global table whose topic has records that cannot be read, and is recreated: on a real broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.jvm.runtime.test_life_cycle import run
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

pytestmark = pytest.mark.jvm

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
