"""Shards and lanes: every shard has exactly one lane, and a key's shard is what Spark's `crc32` says it is."""

from __future__ import annotations

import zlib

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.epochs.shards import lane_of, shard_of, shards_of

shards_and_lanes = st.integers(1, 300).flatmap(lambda shards: st.tuples(st.just(shards), st.integers(1, shards)))


@given(shards_and_lanes)
def test_lanes_share_all_shards_among_them_in_order(counts: tuple[int, int]) -> None:
    shards, lanes = counts
    owned = [shards_of(lane, shards, lanes) for lane in range(lanes)]
    assert [shard for own in owned for shard in own] == list(range(shards))


@given(shards_and_lanes)
def test_a_shard_is_on_the_lane_that_owns_it(counts: tuple[int, int]) -> None:
    shards, lanes = counts
    for lane in range(lanes):
        assert {lane_of(shard, shards, lanes) for shard in shards_of(lane, shards, lanes)} == {lane}


@given(shards_and_lanes)
def test_lanes_differ_by_at_most_one_shard(counts: tuple[int, int]) -> None:
    shards, lanes = counts
    sizes = {len(shards_of(lane, shards, lanes)) for lane in range(lanes)}
    assert sizes <= {shards // lanes, -(-shards // lanes)}


@pytest.mark.parametrize(
    ("key", "crc"),
    [
        (b"123456789", 0xCBF43926),  # the check value of CRC-32/ISO-HDLC, which Java's and Spark's crc32 are
        (b"", 0),
        (b"a", 0xE8B7BE43),
        (b"abc", 0x352441C2),
        (b"\x00\x00\x00\x00", 0x2144DF1C),
        (b"\xff" * 4, 0xFFFFFFFF),
        (b"The quick brown fox jumps over the lazy dog", 0x414FA339),
    ],
)
def test_a_keys_shard_is_its_crc_and_never_changes(key: bytes, crc: int) -> None:
    assert zlib.crc32(key) == crc
    for shards in (1, 2, 7, 32, 1_000):
        assert shard_of(key, shards) == crc % shards
