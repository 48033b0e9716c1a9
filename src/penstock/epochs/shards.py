"""Shards are fixed, lanes are free: a key's shard never changes, and a lane owns a contiguous range of shards."""

from __future__ import annotations

import zlib


def shard_of(key: bytes, shards: int) -> int:
    """The shard of a key; the same as Spark's `pmod(crc32(key), shards)`."""
    return zlib.crc32(key) % shards


def lane_of(shard: int, shards: int, lanes: int) -> int:
    """The lane that owns a shard."""
    return shard * lanes // shards


def shards_of(lane: int, shards: int, lanes: int) -> range:
    """The shards that a lane owns."""
    return range(-(-lane * shards // lanes), -(-(lane + 1) * shards // lanes))
