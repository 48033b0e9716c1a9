"""`python -m benchmarks.blocking`: functions that wait for another system, or are slow, on both engines.

Writes reports/blocking.json and prints its figures; the exit code is 1 if one misses its goal. They are counts, and parts of the
same run, so that a busy machine changes them little:

- `calls_in_flight`: how many calls of 50 ms overlap at most, with 64 shards and two lanes: the least of both engines, with
  functions and with processors that have state.
- `speed_up`: how much sooner two lanes have made 4,000 calls of 5 ms than one, shard by shard (`blocking_threads` 1).
- `calls_before_first_commit`: of 1,000 calls of 50 ms, with as many shards as by default.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from penstock import App, Processor, ProcessorContext, Record, StreamsBuilder, Topology, key_value_store
from verification.harness import topics
from verification.harness.broker import NEVER_KILLED, Broker
from verification.harness.processes import HarnessError
from verification.harness.topics import Sent

REPORT = Path("reports/blocking.json")
ENGINES = ("local", "spark")
SHARDS, LANES, PARTITIONS = 64, 2, 4
TIMEOUT_S = 300
GOALS: dict[str, tuple[float, float]] = {
    "calls_in_flight": (50, SHARDS * LANES),
    "speed_up": (1.8, float("inf")),
    "calls_before_first_commit": (0, 100),
}
"""The least and the most that each figure may be."""


class Call(NamedTuple):
    """When a call of the application's code began and ended."""

    began: float
    ended: float


def wait(log: Path, seconds: float, value: Any) -> Any:
    """Wait as a call of another system does, and note it."""
    began = time.monotonic()
    time.sleep(seconds)
    with log.open("a") as file:
        file.write(f"{began} {time.monotonic()}\n")
    return value


class Asking(Processor[str, str, str, int]):
    """Makes a call for each record, and counts them by key."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self._ask = ask

    def init(self, context: ProcessorContext[str, int]) -> None:
        """Get the store."""
        super().init(context)
        self._counts = context.store("counts")

    def process(self, record: Record[str, str]) -> None:
        """Make the call."""
        self._ask(record.value)
        count = (self._counts.get(record.key) or 0) + 1
        self._counts.put(record.key, count)
        self.context.forward(record.with_value(count))


def functions(source: str, sink: str, ask: Callable[[Any], Any]) -> Topology:
    """A stage without state."""
    builder = StreamsBuilder(key=str, value=str)
    builder.stream(source).map_values(ask).to(sink, value=str)
    return builder.build()


def processors(source: str, sink: str, ask: Callable[[Any], Any]) -> Topology:
    """A stage with state."""
    builder = StreamsBuilder(key=str, value=str)
    builder.add_state_store(key_value_store("counts", key=str, value=int))
    builder.stream(source).process(partial(Asking, ask), stores=["counts"], key=str, value=int).to(sink)
    return builder.build()


class Run(NamedTuple):
    """A run of an application: its calls, and when its first results were committed, as far as that was seen."""

    calls: list[Call]
    first_commit: float


def run(servers: str, make: Callable[..., Topology], count: int, seconds: float, **settings: Any) -> Run:
    """Let an application make so many calls."""
    source, sink = topics_of = tuple(f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("in", "out"))
    for topic in topics_of:
        topics.create(servers, topic, PARTITIONS)
    topics.produce(servers, source, [Sent(key=b"k%d" % number, value=b"v") for number in range(count)])
    with tempfile.TemporaryDirectory(prefix="blocking-") as directory, first_commit(servers, sink) as committed:
        log = Path(directory) / "calls"
        app = App(f"blocking-{source}", make(source, sink, partial(wait, log, seconds)))
        state = Path(directory) / "state"
        with app.start(bootstrap_servers=servers, state_dir=state, admin_address="off", until="latest", **settings) as running:
            if not running.wait(TIMEOUT_S):
                raise HarnessError(f"the application has not ended within {TIMEOUT_S} s")
        calls = [Call(*map(float, line.split())) for line in log.read_text().splitlines()]
    results = len(topics.read(servers, sink))
    if results != count:
        raise HarnessError(f"{results} results of {count} records")
    return Run(calls, committed[0])


@contextmanager
def first_commit(servers: str, topic: str) -> Iterator[list[float]]:
    """Note when the first record of a topic can be read."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "fetch.wait.max.ms": 10})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[float] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set() and not found:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                found.append(time.monotonic())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        is_over.set()
        watching.join()
        consumer.close()


def most_at_once(calls: list[Call]) -> int:
    """Return how many calls overlap at most."""
    edges = sorted([(call.began, 1) for call in calls] + [(call.ended, -1) for call in calls])
    now = most = 0
    for _, step in edges:
        now += step
        most = max(most, now)
    return most


def seconds_of(calls: list[Call]) -> float:
    """Return the time from the first call to the end of the last one."""
    return max(call.ended for call in calls) - min(call.began for call in calls)


def main() -> int:
    """Measure; return 0 if all goals are reached."""
    in_flight: dict[str, int] = {}
    with Broker(settings=NEVER_KILLED) as broker:
        servers = broker.bootstrap_servers
        for engine in ENGINES:
            for make in (functions, processors):
                found = run(servers, make, 40 * SHARDS, 0.05, engine=engine, lanes=LANES, shards=SHARDS)
                in_flight[f"{engine}, {make.__name__}"] = most_at_once(found.calls)
                print(f"{engine}, {make.__name__}: at most {most_at_once(found.calls)} calls in flight", flush=True)
        took = {
            lanes: seconds_of(run(servers, functions, 4_000, 0.005, engine="local", lanes=lanes, blocking_threads=1).calls)
            for lanes in (1, LANES)
        }
        print(", ".join(f"{lanes} lanes: {seconds:.1f} s" for lanes, seconds in took.items()), flush=True)
        first = run(servers, functions, 1_000, 0.05, engine="local", lanes=LANES)
    figures = {
        "calls_in_flight": min(in_flight.values()),
        "speed_up": round(took[1] / took[LANES], 2),
        "calls_before_first_commit": sum(call.began <= first.first_commit for call in first.calls),
    }
    is_reached = {name: GOALS[name][0] <= figure <= GOALS[name][1] for name, figure in figures.items()}
    REPORT.parent.mkdir(exist_ok=True)
    report = {**figures, "in_flight": in_flight, "seconds": took, "goals": GOALS, "reached": is_reached}
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    for name, figure in figures.items():
        print(f"{name:26} {figure:8.3g}   {'reached' if is_reached[name] else 'MISSED'}")
    return 0 if all(is_reached.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
