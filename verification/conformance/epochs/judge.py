"""A case's expected result: one test driver per shard, and an independent router between them.

A shard is what Kafka Streams calls a task: it has the whole topology with its own stores, clocks and punctuators. Records go
to the shard of their key, one by one in the order of an epoch; what they send to exchanges goes to the shard of its new key
before the next record.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from penstock.records import NO_TIMESTAMP, Headers
from penstock.state import LaneState, StoreSpec
from penstock.topology import SourceNode, Topology
from verification.conformance.epochs.internals import GlobalTask, Task, first_writers
from verification.conformance.epochs.lives import Begin
from verification.conformance.epochs.router import Arrived, Origin, Partitions, merged, shard_of
from verification.conformance.epochs.spec import EpochCase


class Sent(NamedTuple):
    """A record that was sent to a topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    partition: int | None = None


class Cause(NamedTuple):
    """The record that caused something, if any; `hops` is the number of exchanges in between."""

    origin: Origin | None
    offset: int
    hops: int


class Judged(NamedTuple):
    """A record to send to a topic, with the shard that sends it, its cause, and when: the number of the epoch and the stage."""

    sent: Sent
    shard: int
    cause: Cause
    when: tuple[int, int] = (0, 0)


NO_CAUSE = Cause(None, -1, 0)


class Judge:
    """All shards of an application."""

    def __init__(self, case: EpochCase, topology: Topology, specs: Mapping[str, StoreSpec], wall_clock: int) -> None:
        self._tables = GlobalTask(topology, specs)
        self._tasks = [Task(topology, specs, wall_clock, self._tables, case.failures) for _ in range(case.shards)]
        self._partitions = Partitions(topology, case.ops)
        self._stages = self._tasks[0].stages
        self._stage_of = self._tasks[0].stage_of
        self._first_writer = first_writers(topology)
        self._exchanges = _exchanges(topology)
        self._epoch = 0
        self._untimed: Counter[tuple[str, str]] = Counter()
        self.outputs: list[Judged] = []

    def epoch(
        self, records: Sequence[Arrived], origins: Mapping[Origin, int], wall_clock: int, begin: Begin = Begin.GO_ON
    ) -> None:
        """Process what the wall clock causes, then each record and everything it causes, then the caches."""
        self._epoch += 1
        for task in self._tasks if begin is not Begin.GO_ON else ():
            task.begin_anew(wall_clock, is_start=begin is Begin.START)
        ticked = [
            (shard, task.tick(stage, wall_clock), stage) for stage in self._stages for shard, task in enumerate(self._tasks)
        ]
        for shard, rows, stage in ticked:
            self._deliver(shard, rows, NO_CAUSE, stage)
        self._untimed.update((record.source, "invalid timestamp") for record in records if record.time == NO_TIMESTAMP)
        for record in merged(records, origins):
            task, cause = self._tasks[record.shard], Cause(record.origin, record.offset, 0)
            key, value = record.read
            rows = task.take(record.source, key, value, record.time, record.headers, (*record.origin, record.offset))
            self._deliver(record.shard, rows, cause, self._stage_of[record.source])
        self._flush()
        for task in self._tasks:
            task.commit()

    def feed(self, record: Arrived) -> None:
        """Feed a record of a global table's topic to every shard."""
        self._tables.feed(record)

    def contents(self, specs: Iterable[StoreSpec]) -> list[dict[str, list[Any]]]:
        """The content of the stores of each shard."""
        return [task.contents(specs) for task in self._tasks]

    def states(self) -> list[LaneState]:
        """The state of each shard."""
        return [task.state for task in self._tasks]

    def dropped(self) -> Counter[tuple[str, str]]:
        """The number of dropped records, by node and reason."""
        return sum((task.dropped() for task in self._tasks), self._untimed.copy())

    def close(self) -> None:
        """Close the shards."""
        for task in self._tasks:
            task.close()

    def _deliver(self, shard: int, rows: list[Any], cause: Cause, stage: int) -> None:
        """Send a stage's rows out, or on to the shard of their key, stage by stage until nothing is left.

        Within a stage, what a row causes comes before what the next one causes. But what several stages send to one exchange
        comes out of it in the order in which it was sent, as in Kafka Streams.
        """
        place = None if cause.origin is None else (*cause.origin, cause.offset)
        waiting: list[tuple[int, int, tuple[int, ...], int, Any, int]] = []

        def send(sender: int, sent: list[Any], sending: int, turn: int, path: tuple[int, ...], hops: int) -> None:
            for number, row in enumerate(sent):
                if row.is_exchanged:
                    is_again = self._first_writer.get(row.topic, sending) < sending
                    order = (self._stage_of[self._exchanges[row.topic].name], sending if is_again else turn, (*path, number))
                    heapq.heappush(waiting, (*order, sender, row, hops))
                else:
                    self._leave(row, sender, cause._replace(hops=hops), sending)

        send(shard, rows, stage, 0, (), 0)
        while waiting:
            arrived, turn, path, sender, row, hops = heapq.heappop(waiting)
            target, following = self._arrive(row, sender, place)
            send(target, following, arrived, turn, path, hops + 1)

    def _flush(self) -> None:
        """Let the caches emit, stage by stage, each stage after it has taken what earlier ones have sent because of theirs.

        No record has caused that: it comes in the order of the stages and the shards that send it.
        """
        waiting: defaultdict[int, list[tuple[int, int, int, Any, int]]] = defaultdict(list)
        numbers = count()

        def send(sender: int, sent: list[Any], sending: int, hops: int) -> None:
            for row in sent:
                if row.is_exchanged:
                    waiting[self._stage_of[self._exchanges[row.topic].name]].append((sending, sender, next(numbers), row, hops))
                else:
                    self._leave(row, sender, NO_CAUSE._replace(hops=hops), sending)

        for stage in self._stages:
            for _, sender, _, row, hops in sorted(waiting[stage]):
                target, following = self._arrive(row, sender, None)
                send(target, following, stage, hops + 1)
            for shard, task in enumerate(self._tasks):
                send(shard, task.flush(stage), stage, 0)

    def _leave(self, row: Any, sender: int, cause: Cause, sending: int) -> None:
        """Send a row to its topic."""
        partition = self._partitions.of(row.topic, row.key)
        leaving = Sent(row.topic, row.key, row.value, row.timestamp, row.headers, partition)
        self.outputs.append(Judged(leaving, sender, cause, (self._epoch, sending)))

    def _arrive(self, row: Any, sender: int, place: tuple[str, int, int] | None) -> tuple[int, list[Any]]:
        """Take a row out of its exchange: the shard of its key, and what that sends."""
        source = self._exchanges[row.topic]
        target = sender if row.key is None else shard_of(row.key, len(self._tasks))
        key = None if row.key is None else source.key.deserialize(row.key)
        value = None if row.value is None else source.value.deserialize(row.value)
        return target, self._tasks[target].take(source.name, key, value, row.timestamp, row.headers, place)


def _exchanges(topology: Topology) -> dict[str, SourceNode]:
    nodes = [node for node in topology.nodes.values() if isinstance(node, SourceNode) and node.internal]
    return {topic: node for node in nodes for topic in node.topics}
