"""Difficult input scripts: nulls, repeated keys, disorder, equal timestamps, records on both sides of every edge."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from verification.conformance.draft import KEYS
from verification.conformance.spec import Advance, Pipe, Scalar

VALUES = ("a", "b", "c", "ab", "bc", "ca", "a1", "b2", "cä", "x", "xa", "")
DOCUMENTS = ("{}", '{"n":1}', '{"n":2,"total":0.5}', '{"n":3,"who":"x"}')
"""JSON objects as Penstock writes them, so that both sides have the same text."""

WALL = (1, 10, 100, 999, 1000, 1001, 5000)


class Script:
    """Writes the steps of one case."""

    def __init__(self, dice: Random, topics: dict[str, tuple[str, str]], tables: set[str], spans: set[int]) -> None:
        self._dice = dice
        self._topics = topics
        self._tables = tables
        self._spans = sorted(spans) or [10]
        # Not later: Kafka Streams' cached window stores iterate over every minute since 1970 when they are read whole.
        self._clock = dice.choice((0, 0, 7, 1_000, 5_000_000))
        self._last = self._clock
        self._nasty = dice.random() < 0.8

    def steps(self, count: int, *, walls: float, boom: bool) -> tuple[Pipe | Advance, ...]:
        """This many steps. Records of tables tend to come first, so that joins match."""
        result: list[Pipe | Advance] = []
        for index in range(count):
            if self._dice.random() < walls:
                result.append(Advance(self._dice.choice(WALL)))
                continue
            result.append(self._pipe(early=index < count // 4))
        if boom:
            topic = self._dice.choice([topic for topic, (_, value) in self._topics.items() if value == "string"] or [""])
            if topic:
                at = self._dice.randrange(len(result) // 2, len(result) + 1)
                result.insert(at, Pipe(topic, "a" if self._topics[topic][0] == "string" else 1, "boom", self._clock))
        return tuple(result)

    def _pipe(self, *, early: bool) -> Pipe:
        dice = self._dice
        tables = sorted(self._tables)
        others: Sequence[str] = [topic for topic in self._topics if topic not in self._tables] or tables
        topic = dice.choice(tables) if tables and dice.random() < (0.7 if early else 0.4) else dice.choice(others)
        key, value = self._topics[topic]
        headers: tuple[tuple[str, str | None], ...] = ()
        if dice.random() < 0.15:
            headers = tuple((dice.choice(("h", "i")), dice.choice(("1", "", None))) for _ in range(dice.choice((1, 2))))
        nulls = (0.04, 0.15 if topic in self._tables else 0.08) if self._nasty else (0.0, 0.05)
        return Pipe(
            topic,
            None if dice.random() < nulls[0] else _scalar(dice, key, KEYS if dice.random() < 0.9 else ("ab", "d", "")),
            None if dice.random() < nulls[1] else _scalar(dice, value, DOCUMENTS if value == "json" else VALUES),
            self._time(),
            headers,
        )

    def _time(self) -> int:
        dice = self._dice
        span = dice.choice(self._spans)
        roll = dice.random()
        if not self._nasty:
            at = self._clock + dice.randrange(4)
        elif roll < 0.3:
            at = self._clock + dice.randrange(8)
        elif roll < 0.45:
            at = self._last
        elif roll < 0.6:
            at = self._clock + dice.choice((-1, 1)) * span + dice.choice((-1, 0, 1))
        elif roll < 0.75:
            at = (self._clock // span + dice.choice((-1, 0, 0, 1))) * span + dice.choice((-1, 0, 1))
        elif roll < 0.9:
            at = self._clock - dice.randrange(30)
        else:
            at = self._clock + dice.randrange(10, 60)
        self._last = max(0, at)
        self._clock = max(self._clock, self._last)
        return self._last


def _scalar(dice: Random, serde: str, texts: Sequence[str]) -> Scalar:
    if serde == "long":
        return dice.choice((0, 1, 2, 3, -1, 2**40))
    if serde == "double":
        return dice.choice((0.0, 0.5, 1.25, -2.5, 100.0))
    text = dice.choice(texts)
    return text.encode().hex() if serde == "bytes" else text
