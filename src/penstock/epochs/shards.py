"""Shards are fixed, lanes are free: a record's shard never changes, and a lane runs a contiguous range of shards.

A shard is what Kafka Streams calls a task. A record with a key is of its key's shard; one without a key is of the shard of its
source partition, so that the order within a partition is kept, and behind an exchange it stays in the shard that sent it.
"""

from __future__ import annotations

import zlib


def shard_of(key: bytes, shards: int) -> int:
    """The shard of a key; the same as Spark's `pmod(crc32(key), shards)`."""
    return zlib.crc32(key) % shards


def shard_of_partition(partition: int, shards: int) -> int:
    """The shard of records without a key."""
    return partition % shards


def lane_of(shard: int, shards: int, lanes: int) -> int:
    """The lane that runs a shard."""
    return shard * lanes // shards


def shards_of(lane: int, shards: int, lanes: int) -> range:
    """The shards that a lane runs."""
    return range(-(-lane * shards // lanes), -(-(lane + 1) * shards // lanes))
