"""Changelog topics as lists, for a host without Kafka: epochs write them, they are compacted, and restores read them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from penstock.epochs.program import Program, lanes_topic
from penstock.epochs.restore import restore_lane
from penstock.epochs.standing import Committed
from penstock.epochs.state_directory import StateDirectory
from penstock.history.committed import places
from penstock.records import ChangelogRows, Partition
from penstock.state import REGISTERS
from penstock.topology.bindings import changelog_topic

Log = tuple[list[bytes], list[bytes | None]]


class Changelogs:
    """The changelogs of an application, including the lanes' topic."""

    def __init__(self) -> None:
        self._logs: dict[Partition, Log] = {}

    def append(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        """Append a row."""
        keys, values = self._logs.setdefault((topic, partition), ([], []))
        keys.append(key)
        values.append(value)

    def of_stores(self, application_id: str, stores: Iterable[str]) -> dict[tuple[str, int], Log]:
        """All rows of some stores, and of the registers, by store and shard."""
        store_of = {changelog_topic(application_id, store): store for store in stores}
        store_of[lanes_topic(application_id)] = REGISTERS
        return {(store_of[topic], shard): log for (topic, shard), log in self._logs.items() if topic in store_of}

    def restart(self, program: Program, lanes: int, incarnation: str, epoch: int, now_ms: int) -> Program:
        """Start the application again, with this many lanes, from compacted changelogs alone."""
        self._compact()
        home = StateDirectory(program.directory, program.application_id)
        home.take_over(incarnation)
        ends = places({place: len(keys) for place, (keys, _) in self._logs.items()})
        committed = Committed(epoch, program.incarnation, {}, ends, now_ms)
        restarted = replace(program, lanes=lanes, incarnation=incarnation)
        for lane in range(lanes):
            restore_lane(restarted, lane, committed, self._read, lambda left: None, is_retry=True)
        home.forget_others(lanes)
        return restarted

    def _read(self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[ChangelogRows]:
        for (topic, partition), end in ends.items():
            keys, values = self._logs[topic, partition]
            start = positions[topic, partition]
            yield ChangelogRows(topic, partition, keys[start:end], values[start:end])

    def _compact(self) -> None:
        """Keep the last row of each key, in place; remove deleted keys."""
        for place, (keys, values) in self._logs.items():
            last = {key: number for number, key in enumerate(keys)}
            kept = [number for number in sorted(last.values()) if values[number] is not None]
            self._logs[place] = [keys[number] for number in kept], [values[number] for number in kept]
