"""Topics that take records of different sizes, on a real broker and real Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jvm.runtime.test_life_cycle import ON_SPARK, run
from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = pytest.mark.jvm

LARGER = """
import random
from penstock import App, StreamsBuilder, dead_letter

def grown(value):
    return random.Random(1).randbytes(int(value))

builder = StreamsBuilder()
sizes = builder.stream("sizes-in", value=str)
sizes.map_values(grown).to("sizes-large", value=bytes)
sizes.map_values(grown).to(lambda key, value, context: f"sizes-{key}", value=bytes)
app = App("sizes", builder.build(), production_errors=dead_letter("sizes-letters"))
if __name__ == "__main__":
    app.run(until="latest")
"""


def test_only_the_limit_of_its_own_topic_applies_to_a_record(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, "sizes-in", config={"max.message.bytes": "500"})
    topics.create(servers, "sizes-large", config={"max.message.bytes": "5000000"})
    topics.create(servers, "sizes-a", config={"max.message.bytes": "4000000"})
    topics.create(servers, "sizes-b", config={"max.message.bytes": "1000"})
    topics.create(servers, "sizes-letters")
    records = [("a", 3_000_000), ("b", 800), ("a", 4_500_000), ("b", 2_000), ("a", 6_000_000)]
    topics.produce(servers, "sizes-in", [topics.Sent(key=key.encode(), value=b"%d" % size) for key, size in records])
    path = tmp_path / "sizes.py"
    path.write_text(LARGER, encoding="utf-8")
    code, log = run(path, broker, ON_SPARK)
    assert code == 0, log

    def sizes(topic: str) -> list[int]:
        return [len(record.value or b"") for record in topics.read(servers, topic)]

    assert sizes("sizes-large") == [3_000_000, 800, 4_500_000, 2_000]
    assert (sizes("sizes-a"), sizes("sizes-b")) == ([3_000_000], [800])
    letters = [dict(letter.headers)["__streams.errors.message"] or b"" for letter in topics.read(servers, "sizes-letters")]
    assert sorted(text.rstrip(b".").split(b"too large for topic ")[1] for text in letters) == [
        b"'sizes-a', which accepts 4000000 bytes",
        b"'sizes-a', which accepts 4000000 bytes",
        b"'sizes-b', which accepts 1000 bytes",
        b"'sizes-large', which accepts 5000000 bytes",
    ]
