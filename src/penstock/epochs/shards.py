"""Shards and lanes: a record's shard never changes; a lane runs a contiguous range of shards, for any number of lanes.

A shard is what Kafka Streams calls a task. A record with a key belongs to the shard of its key. One without a key belongs to the
shard of its source partition, which keeps the order within the partition; after an exchange it stays in the shard that sent it.
"""

from __future__ import annotations

import zlib


def shard_of(key: bytes, shards: int) -> int:
    """Return the shard of a key."""
    return zlib.crc32(key) % shards


def shard_of_partition(partition: int, shards: int) -> int:
    """Return the shard of records without a key."""
    return partition % shards


def lane_of(shard: int, shards: int, lanes: int) -> int:
    """Return the lane that runs a shard."""
    return shard * lanes // shards


def shards_of(lane: int, shards: int, lanes: int) -> range:
    """Return the shards that a lane runs."""
    return range(-(-lane * shards // lanes), -(-(lane + 1) * shards // lanes))
