"""Windows that close by a watermark when input stops, wholly or in part: on a real broker."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from penstock.kafka.commit import CommitMetadata
from tests.jvm.runtime.test_life_cycle import START_S, finish, started
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

pytestmark = [pytest.mark.jvm, pytest.mark.slow]  # windows close after real seconds

WINDOW_MS = 1_000
IDLE_S = 3
KEYS = ("a", "b", "c", "d", "e")

COUNTS = """
from penstock import App, StreamsBuilder, bounded_disorder, tumbling, until_window_closes

def named(windowed, count):
    return f"{{windowed.key}}@{{windowed.start}}"

builder = StreamsBuilder()
told = bounded_disorder("200ms", idle="{idle}s", follow_wall_clock={follows}{more})
(
    builder.stream("{source}", key=str, value=str, watermark=told)
    .group_by_key()
    .windowed_by(tumbling({window}))
    .count(store="counts")
    .suppress(until_window_closes())
    .to_stream(named, key=str)
    .to("{name}-out", value=int)
)
app = App("{name}", builder.build())
if __name__ == "__main__":
    app.run()
"""


def write_counts(directory: Path, name: str, source: str, follows: bool, more: str = "") -> Path:
    path = directory / f"{name}.py"
    text = COUNTS.format(name=name, source=source, follows=follows, idle=IDLE_S, window=WINDOW_MS, more=more)
    path.write_text(text, encoding="utf-8")
    return path


def finals(broker: Broker, name: str) -> list[tuple[str, int]]:
    found = topics.read(broker.bootstrap_servers, f"{name}-out")
    return sorted(((record.key or b"").decode(), int.from_bytes(record.value or b"", "big")) for record in found)


def sent(number: int, timestamp: int, partition: int) -> topics.Sent:
    return topics.Sent(key=KEYS[number % len(KEYS)].encode(), value=b"v", timestamp=timestamp, partition=partition)


def windows_of(records: list[topics.Sent]) -> list[tuple[str, int]]:
    counts: dict[str, int] = {}
    for record in records:
        name = f"{(record.key or b'').decode()}@{record.timestamp - record.timestamp % WINDOW_MS}"
        counts[name] = counts.get(name, 0) + 1
    return sorted(counts.items())


def has_read(broker: Broker, name: str, source: str) -> bool:
    ends = topics.end_offsets(broker.bootstrap_servers, source)
    offsets = {place[1]: offset for place, (offset, _) in topics.group_offsets(broker.bootstrap_servers, name).items()}
    return offsets == ends


def test_the_last_windows_close_when_input_stops_and_a_replay_gives_the_same(broker: Broker, tmp_path: Path) -> None:
    servers, source = broker.bootstrap_servers, "stops-in"
    for topic, partitions in ((source, 2), ("stops-out", 2), ("replay-out", 2)):
        topics.create(servers, topic, partitions=partitions)
    path = write_counts(tmp_path, "stops", source, follows=True)
    with started(path, broker) as process:
        begin = int(time.time() * 1000) - 5_000
        records = [sent(number, begin + 10 * number, number % len(KEYS) % 2) for number in range(500)]
        topics.produce(servers, source, records)
        wait_until("all is read", lambda: has_read(broker, "stops", source), START_S, every_s=0.02)
        read_at = time.monotonic()
        expected = windows_of(records)
        wait_until("all windows have closed", lambda: finals(broker, "stops") == expected, 30, every_s=0.02)
        took_s = time.monotonic() - read_at
        process.send_signal(signal.SIGTERM)
        code, log = finish(process, path)
    assert code == 0, log
    assert took_s <= IDLE_S + 1, f"{took_s:.2f} s after the last record was read"
    again = write_counts(tmp_path, "replay", source, follows=True)
    with started(again, broker) as process:
        wait_until("all windows have closed", lambda: len(finals(broker, "replay")) >= len(expected), START_S)
        process.send_signal(signal.SIGTERM)
        code, log = finish(process, again)
    assert (code, finals(broker, "replay")) == (0, expected), log


def test_a_silent_partition_holds_nothing_back_for_longer_than_its_timeout(broker: Broker, tmp_path: Path) -> None:
    servers, source = broker.bootstrap_servers, "silent-in"
    for topic, partitions in ((source, 4), ("silent-out", 2)):
        topics.create(servers, topic, partitions=partitions)
    path = write_counts(tmp_path, "silent", source, follows=False)
    records: list[topics.Sent] = []
    closed_after: float | None = None
    with started(path, broker) as process:
        first_read: float | None = None
        end = time.monotonic() + START_S
        while closed_after is None and time.monotonic() < end:
            now = int(time.time() * 1000)
            more = [sent(number, now, number % len(KEYS) % 3) for number in range(5)]
            records += more
            topics.produce(servers, source, more)
            if first_read is None and any(offset > 0 for offset, _ in topics.group_offsets(servers, "silent").values()):
                first_read = time.monotonic()
            if finals(broker, "silent") and first_read is not None:
                closed_after = time.monotonic() - first_read
        process.send_signal(signal.SIGTERM)
        code, log = finish(process, path)
    assert code == 0, log
    assert closed_after is not None, "no window has closed"
    assert closed_after <= IDLE_S + 3, f"{closed_after:.2f} s after the first record was read"
    expected = dict(windows_of(records))
    assert all(expected[name] == count for name, count in finals(broker, "silent"))


def test_a_partition_that_is_far_ahead_waits_for_the_slower_one(broker: Broker, tmp_path: Path) -> None:
    servers, source, name = broker.bootstrap_servers, "aligned-in", "aligned"
    for topic, partitions in ((source, 2), (f"{name}-out", 2)):
        topics.create(servers, topic, partitions=partitions)
    slow = [sent(number, 1_000_000 + 10 * number, 0) for number in range(4_000)]
    fast = [sent(number, 1_000_000 + 100 * number, 1) for number in range(4_000)]
    for records in (slow, fast):
        topics.produce(servers, source, records)
    path = write_counts(tmp_path, name, source, follows=True, more=', align="5s"')
    most = 400
    apart_ms: list[int] = []
    with started(path, broker, PENSTOCK_MAX_EPOCH_RECORDS=str(most)) as process:

        def is_read() -> bool:
            found = topics.group_offsets(servers, name)
            if len(found) == 2 and found[source, 0][0] < len(slow):
                first, second = (CommitMetadata.decode(found[source, partition][1]).watermark for partition in (0, 1))
                apart_ms.append(second - first)
            return has_read(broker, name, source)

        wait_until("all is read", is_read, START_S, every_s=0.005)
        expected = windows_of(slow + fast)
        wait_until("all windows have closed", lambda: finals(broker, name) == expected, 30)
        process.send_signal(signal.SIGTERM)
        code, log = finish(process, path)
    assert code == 0, log
    assert len(apart_ms) > 1
    assert max(apart_ms) <= 5_000 + most * 100, apart_ms
