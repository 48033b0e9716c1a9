"""Input too large for a single epoch, with default settings: large records, many outputs, slow code, records that kill.

`LARGE_EPOCHS=full` uses the sizes for which the bounds were made; without it everything is smaller.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.jvm.runtime.test_life_cycle import ON_SPARK, started
from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = pytest.mark.jvm

IS_FULL = os.environ.get("LARGE_EPOCHS") == "full"
END_S = 900 if IS_FULL else 240
LARGEST = 12 << 20
PARTITIONS = 4

APP = """
import time
from penstock import App, StreamsBuilder, dead_letter

{code}

builder = StreamsBuilder()
{topology}
app = App("{name}", builder.build(), processing_errors=dead_letter("{name}-dead"))

def print_epoch(report):
    print("EPOCH", report.number, report.records, round(report.seconds, 2), flush=True)

if __name__ == "__main__":
    running = app.start(until="latest"{arguments})
    running.recorder.listen(print_epoch)
    running.wait()
"""


@dataclass(frozen=True)
class Case:
    """An application and its input."""

    name: str
    records: int
    size: int
    topology: str
    code: str = ""
    arguments: str = ""
    outputs: int = 1


ECHO = 'builder.stream("{name}-in", value=bytes).filter(lambda key, value: True).to("{name}-out", value=bytes)'
COUNT = (
    'builder.stream("{name}-in", value=bytes).map_values(work).group_by_key().count(store="counts").to_stream()'
    '.to("{name}-out", value=int)'
)
FAN_OUT = 'builder.stream("{name}-in", value=bytes).flat_map_values(many).to("{name}-out", value=bytes)'


def of(full: int, part: int) -> int:
    return full if IS_FULL else part


LARGE = [
    Case("kilobytes", of(300_000, 40_000), 4 << 10, ECHO),
    Case("megabytes", of(2_000, 300), 1 << 20, ECHO),
    Case("tens", of(10, 6), 10 << 20, ECHO),
    Case("fan", of(5_000, 400), 20, FAN_OUT, "def many(value):\n    return [value + b'x' * 100] * 1_000", outputs=1_000),
    Case("slow", of(10_000, 1_500), 20, COUNT, "def work(value):\n    time.sleep(0.005)\n    return value"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(heap="1g", settings={"message.max.bytes": str(LARGEST)}) as running:
        yield running


def key_of(number: int) -> bytes:
    return b"k%d" % (number % 500)


def fill(broker: Broker, case: Case, marks: dict[int, bytes] | None = None) -> None:
    """Create the topics and write the records; `marks` are the first bytes of some of them."""
    for topic in ("in", "out", "dead"):
        topics.create(broker.bootstrap_servers, f"{case.name}-{topic}", PARTITIONS)
    settings: dict[str, str | int] = {"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": LARGEST, "linger.ms": 5}
    producer = Producer(settings)
    rest = os.urandom(case.size)
    for number in range(case.records):
        start = (marks or {}).get(number, b"%d;" % number)
        while True:
            try:
                producer.produce(f"{case.name}-in", start + rest[len(start) :], key_of(number))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(120) == 0


def run(broker: Broker, path: Path, case: Case) -> tuple[int, str, list[int]]:
    """Return the exit code of the application, its log, and the number of records of each epoch."""
    app = path / f"{case.name}.py"
    names = {"name": case.name, "code": case.code, "arguments": case.arguments}
    app.write_text(APP.format(topology=case.topology.format(name=case.name), **names), encoding="utf-8")
    with started(app, broker, ON_SPARK) as process:
        code = process.wait(END_S)
    log = app.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
    return code, log, [int(line.split()[2]) for line in log.splitlines() if line.startswith("EPOCH")]


def written(broker: Broker, topic: str) -> int:
    """Return the number of records of a topic."""
    return len(topics.read(broker.bootstrap_servers, topic))


def counted(broker: Broker, topic: str) -> dict[bytes | None, int]:
    """Return the last count of each key."""
    return {row.key: int.from_bytes(row.value or b"", "big") for row in topics.read(broker.bootstrap_servers, topic)}


@pytest.mark.parametrize("case", LARGE, ids=lambda case: case.name)
def test_all_input_is_processed_with_default_settings(broker: Broker, tmp_path: Path, case: Case) -> None:
    fill(broker, case)
    code, log, epochs = run(broker, tmp_path, case)
    assert code == 0, log[-5_000:]
    assert sum(epochs) == case.records
    assert epochs[0] <= 1_000, "the first commit waited for a large epoch"
    if case.topology is not COUNT:
        assert written(broker, f"{case.name}-out") == case.records * case.outputs
    else:
        counts = Counter(key_of(number) for number in range(case.records))
        found = {
            row.key: int.from_bytes(row.value or b"", "big") for row in topics.read(broker.bootstrap_servers, f"{case.name}-out")
        }
        assert found == counts
    assert written(broker, f"{case.name}-dead") == 0
    assert "OutOfMemory" not in log
    assert "OutOfDirectMemory" not in log


POISON = [
    Case("hungry", 3_000, 20, COUNT, 'def work(value):\n    return bytes(1 << 60) if value.startswith(b"poison") else value'),
    Case(
        "dying",
        300,
        20,
        COUNT,
        'import os\ndef work(value):\n    if value.startswith(b"poison"):\n        os._exit(1)\n    return value',
    ),
    Case(
        "stuck",
        20,
        20,
        COUNT,
        'def work(value):\n    time.sleep(25 if value.startswith(b"poison") else 0)\n    return value',
        ', epoch_timeout="10s"',
    ),
]


@pytest.mark.parametrize("case", POISON, ids=lambda case: case.name)
def test_a_record_that_cannot_be_processed_becomes_a_dead_letter_and_the_others_are_processed(
    broker: Broker, tmp_path: Path, case: Case
) -> None:
    poison = case.records // 2 + 1
    fill(broker, case, {poison: b"poison"})
    code, log, _ = run(broker, tmp_path, case)
    assert code == 0, log[-5_000:]
    [letter] = topics.read(broker.bootstrap_servers, f"{case.name}-dead")
    assert letter.key == key_of(poison)
    assert (letter.value or b"").startswith(b"poison")
    counts = Counter(key_of(number) for number in range(case.records) if number != poison)
    found = {
        row.key: int.from_bytes(row.value or b"", "big") for row in topics.read(broker.bootstrap_servers, f"{case.name}-out")
    }
    assert found == counts
