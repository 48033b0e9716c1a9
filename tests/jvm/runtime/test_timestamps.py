"""Records with invalid timestamps, on a real broker: the handler decides, and the others are processed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.jvm.runtime.test_life_cycle import run
from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = [pytest.mark.jvm, pytest.mark.slow]  # several starts each

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}

COUNTS = """
from penstock import App, StreamsBuilder, dead_letter, log_and_continue, log_and_fail

builder = StreamsBuilder()
numbers = builder.stream("{name}-in", key=str, value=str{more})
numbers.group_by_key().count(store="counts").to_stream().to("{name}-out", value=int)
app = App("{name}", builder.build(), deserialization_errors={handler})
if __name__ == "__main__":
    app.run(until="latest", small_epoch_records={small})
"""


def write_app(directory: Path, name: str, handler: str, more: str = "", small: int = 2_000) -> Path:
    path = directory / f"{name}.py"
    path.write_text(COUNTS.format(name=name, handler=handler, more=more, small=small), encoding="utf-8")
    return path


def counts(broker: Broker, name: str) -> dict[str, int]:
    found = topics.read(broker.bootstrap_servers, f"{name}-out")
    return {(record.key or b"").decode(): int.from_bytes(record.value or b"", "big") for record in found}


def prepare(broker: Broker, name: str) -> None:
    servers = broker.bootstrap_servers
    topics.create(servers, f"{name}-in", partitions=2, config=ANY_TIME)
    topics.create(servers, f"{name}-out")
    topics.create(servers, f"{name}-letters")


def sent(number: int, timestamp: int | None = None, partition: int = 0) -> topics.Sent:
    now = int(time.time() * 1000) if timestamp is None else timestamp
    return topics.Sent(key=b"k%d" % (number % 3), value=b"v%d" % number, timestamp=now, partition=partition)


def test_a_timestamp_in_nanoseconds_and_a_missing_one_become_dead_letters(broker: Broker, tmp_path: Path) -> None:
    servers, name = broker.bootstrap_servers, "poison"
    prepare(broker, name)
    poison = [sent(3, time.time_ns()), sent(4, time.time_ns(), 1), sent(5, -1)]
    records = [sent(0), sent(1, partition=1), *poison, sent(6), sent(7, partition=1)]
    topics.produce(servers, f"{name}-in", records)
    path = write_app(tmp_path, name, f'dead_letter("{name}-letters")')
    code, log = run(path, broker)
    assert code == 0, log
    assert counts(broker, name) == {"k0": 2, "k1": 2}
    letters = topics.read(servers, f"{name}-letters")
    assert sorted(letter.value or b"" for letter in letters) == [b"v3", b"v4", b"v5"]
    assert all(abs(letter.timestamp - time.time() * 1000) < 600_000 for letter in letters)
    places = sorted(
        (told["__streams.errors.partition"], told["__streams.errors.offset"]) for told in (dict(one.headers) for one in letters)
    )
    assert places == [(b"0", b"1"), (b"0", b"2"), (b"1", b"1")]

    topics.produce(servers, f"{name}-in", [sent(9), sent(10, time.time_ns()), sent(12)])
    path = write_app(tmp_path, name, "log_and_continue()", small=0)
    code, log = run(path, broker)
    assert code == 0, log
    assert counts(broker, name) == {"k0": 4, "k1": 2}
    assert f"{name}-in-0 at offset 5" in log


def test_by_default_the_record_is_named_and_an_extractor_may_read_its_time(broker: Broker, tmp_path: Path) -> None:
    servers, name = broker.bootstrap_servers, "nanos"
    prepare(broker, name)
    topics.produce(servers, f"{name}-in", [sent(0), sent(1, time.time_ns())])
    path = write_app(tmp_path, name, "log_and_fail()")
    code, log = run(path, broker)
    assert code == 10, log
    assert f"The record from {name}-in-0 at offset 1 has the invalid timestamp" in log
    assert counts(broker, name) == {}

    path = write_app(
        tmp_path, name, "log_and_fail()", ", timestamp=lambda r: r.timestamp // 10**6 if r.timestamp > 10**17 else r.timestamp"
    )
    code, log = run(path, broker)
    assert code == 0, log
    assert counts(broker, name) == {"k0": 1, "k1": 1}
