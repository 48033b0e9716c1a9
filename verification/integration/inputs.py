"""Input from a seed: out-of-order times, unevenly distributed keys, and records that reach every shard."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from random import Random

from verification.integration.scenario import Fed, Phase

START_MS = 1_000_000
SHARDS = 10
"""Enough for every number of lanes; each shard costs a partition of every changelog."""


def moments(
    rng: Random, count: int, *, start: int = START_MS, step: int = 50, disorder: int = 800, late: float = 0.05
) -> Iterator[int]:
    """Event times: every fifth is out of order by up to `disorder`, and a fraction `late` by much more than that."""
    now = start
    for _ in range(count):
        now += rng.randrange(2 * step)
        if rng.random() < late:
            yield max(0, now - rng.randrange(4 * disorder, 12 * disorder))
        elif rng.random() < 0.2:
            yield max(0, now - rng.randrange(disorder))
        else:
            yield now


def forward_moments(rng: Random, count: int, *, start: int = START_MS, step: int = 50) -> Iterator[int]:
    """Event times that never go back."""
    return moments(rng, count, start=start, step=step, disorder=1, late=0)


def any_key(rng: Random, keys: int = 40) -> str:
    """One of `keys` keys; low ones are more frequent."""
    return f"k{min(rng.randrange(keys), rng.randrange(keys))}"


def fed(topic: str, key: str | None, value: str | None, timestamp: int) -> Fed:
    """A record of text."""
    return Fed(topic, None if key is None else key.encode(), None if value is None else value.encode(), timestamp)


def _one_key_per_shard() -> tuple[str, ...]:
    found: dict[int, str] = {}
    number = 0
    while len(found) < SHARDS:
        candidate = f"~{number}"
        found.setdefault(zlib.crc32(candidate.encode()) % SHARDS, candidate)
        number += 1
    return tuple(found[shard] for shard in range(SHARDS))


def partition_of(key: bytes | None, partitions: int) -> int:
    """The partition of a record in its topic."""
    return 0 if key is None else zlib.crc32(key) % partitions


EVERYWHERE = _one_key_per_shard()
"""Keys that reach every shard."""


def closing(topic: str, value: Callable[[str], str], after: Sequence[Fed], by_ms: int = 3_600_000) -> list[Fed]:
    """Records long after all others, in every shard: they close windows and release what waits for time."""
    time = max(record.timestamp for record in after) + by_ms
    return [fed(topic, key, value(key), time) for key in EVERYWHERE]


def one_phase(records: Sequence[Fed]) -> list[Phase]:
    """An input of one phase."""
    return [Phase(records)]
