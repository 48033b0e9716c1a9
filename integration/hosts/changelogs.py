"""Changelog topics as lists, for a host without Kafka: written by epochs, compacted, and read again when lanes are restored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from penstock.epochs.home import Home
from penstock.epochs.program import Program, changelog_topic, lanes_topic
from penstock.epochs.restoring import Committed, Rows, registers_of_lanes, restore_lane
from penstock.running.committed import lanes_log, places

Partition = tuple[str, int]
Log = tuple[list[bytes], list[bytes | None]]


class Changelogs:
    """The changelogs of an application, the lanes' own included."""

    def __init__(self) -> None:
        self._logs: dict[Partition, Log] = {}

    def append(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """One more row."""
        keys, values = self._logs.setdefault((topic, partition), ([], []))
        keys.append(key)
        values.append(value)

    def of_store(self, application_id: str, store: str) -> Log:
        """All rows of a store, whichever partition they are in."""
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for (topic, _), log in self._logs.items():
            if topic == changelog_topic(application_id, store):
                keys += log[0]
                values += log[1]
        return keys, values

    def restart(self, program: Program, lanes: int, incarnation: str, epoch: int, now_ms: int) -> Program:
        """Another start of the application, with so many lanes, made from nothing but compacted changelogs."""
        self._compact()
        home = Home(program.directory, program.application_id)
        home.take_over(incarnation)
        own = lanes_topic(program.application_id)
        notes = [(topic, partition, *log) for (topic, partition), log in self._logs.items() if topic == own]
        registers = lanes_log(program.application_id, notes, program.lanes, program.shards).registers
        registers = registers_of_lanes(registers, program.lanes, lanes, program.shards)
        ends = places({place: len(keys) for place, (keys, _) in self._logs.items()})
        committed = Committed(epoch, program.incarnation, {}, ends, registers, now_ms)
        restarted = replace(program, lanes=lanes, incarnation=incarnation)
        for lane in range(lanes):
            restore_lane(restarted, lane, committed, self._read, lambda left: None, is_retry=True)
        home.forget_others(lanes)
        return restarted

    def _read(self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[Rows]:
        for (topic, partition), end in ends.items():
            keys, values = self._logs[topic, partition]
            start = positions[topic, partition]
            yield Rows(topic, partition, keys[start:end], values[start:end])

    def _compact(self) -> None:
        """Keep the last row of each key, where it is; what has been deleted is gone."""
        for place, (keys, values) in self._logs.items():
            last = {key: number for number, key in enumerate(keys)}
            kept = [number for number in sorted(last.values()) if values[number] is not None]
            self._logs[place] = [keys[number] for number in kept], [values[number] for number in kept]
