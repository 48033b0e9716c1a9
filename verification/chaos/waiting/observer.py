"""What Kafka has of the application with pending work, converted to its checker's types."""

from __future__ import annotations

import json
import struct
from collections import defaultdict

from verification.chaos.observer import Observer, long, outputs
from verification.chaos.reader import Records
from verification.chaos.waiting.checker import Fired, Found, Tick
from verification.chaos.waiting.forms import EVERY_MS, TICKS, TIMERS, WaitingTopics

_TIME = struct.Struct(">BQ")
_END = b"\x00\x00"
_TIMESTAMP = 8


class WaitingObserver(Observer):
    """Reads the topics and the group of the application."""

    def __init__(self, bootstrap_servers: str, topics: WaitingTopics) -> None:
        self._counted = {name: f"{TICKS}-{name}" for name in EVERY_MS}
        super().__init__(bootstrap_servers, topics, (TIMERS, *self._counted.values()))
        self._names = topics

    def waits(self) -> Found:
        """Answers, timers, ticks and offsets. They are consistent only while nothing is being committed."""
        topics = self._names
        read = self._read(*topics.outputs, *self._changelogs.values())
        counts = {name: _last(read, self._changelogs[store]) for name, store in self._counted.items()}
        return Found(
            outputs(read, topics.echo, json.loads),
            fired(read, topics.fired),
            _pending(read, self._changelogs[TIMERS]),
            _ticks(read, topics.ticks),
            counts,
            self.offsets(),
        )


def fired(read: Records, topic: str) -> list[Fired]:
    """The output of timers."""
    values = (json.loads(record.value or b"") for (name, _), records in read.items() if name == topic for record in records)
    return [Fired(value["timer"], value["due"], value["at"]) for value in values]


def _pending(read: Records, topic: str) -> dict[str, int]:
    """The content of the timers' changelog, by name."""
    last = {record.key or b"": record.value for (name, _), records in read.items() if name == topic for record in records}
    found = {}
    for key, value in last.items():
        if value is not None:
            found[key[key.index(_END) + len(_END) :].decode()] = int(_TIME.unpack(value)[1])
    return found


def _ticks(read: Records, topic: str) -> dict[str, list[Tick]]:
    found: defaultdict[str, list[Tick]] = defaultdict(list)
    for (name, _), records in read.items():
        for record in records if name == topic else ():
            value = json.loads(record.value or b"")
            found[(record.key or b"").decode()].append(Tick(value["due"], value["at"]))
    return found


def _last(read: Records, topic: str) -> int:
    """The last count in a changelog with one key."""
    values = [record.value for (name, _), records in read.items() if name == topic for record in records]
    return long((values[-1] or b"")[_TIMESTAMP:]) if values else 0
