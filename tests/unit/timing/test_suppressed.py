"""Suppressions and their buffers, as values."""

from __future__ import annotations

import pickle

import pytest

from penstock.errors import TopologyError
from penstock.timing import (
    BufferConfig,
    Suppressed,
    WhenFull,
    max_bytes,
    max_records,
    unbounded,
    until_time_limit,
    until_window_closes,
)


def test_the_unbounded_buffer_is_strict_and_logged() -> None:
    buffer = unbounded()
    assert (buffer.max_records, buffer.max_bytes) == (None, None)
    assert buffer.strict
    assert buffer.logged
    assert buffer.changelog_config == ()


def test_bounded_buffers_emit_early_by_default() -> None:
    assert max_records(5) == BufferConfig(max_records=5, when_full=WhenFull.EMIT_EARLY)
    assert max_bytes(7) == BufferConfig(max_bytes=7, when_full=WhenFull.EMIT_EARLY)
    assert not max_records(5).strict
    strict = max_records(5).with_max_bytes(7).shut_down_when_full()
    assert strict == BufferConfig(5, 7, WhenFull.SHUT_DOWN)
    assert strict.emit_early_when_full() == max_bytes(7).with_max_records(5)
    assert max_records(5).with_no_bound() == unbounded()
    assert max_records(0).max_records == 0


def test_the_changelog_of_a_buffer() -> None:
    assert unbounded().with_logging_disabled() == BufferConfig(logged=False)
    logged = unbounded().with_logging_disabled().with_logging_enabled({"retention.ms": "1"})
    assert logged == BufferConfig(changelog_config=(("retention.ms", "1"),))
    assert logged.with_logging_disabled().changelog_config == ()


def test_negative_limits_are_rejected() -> None:
    with pytest.raises(TopologyError, match=r"-1 records. It must not be negative"):
        max_records(-1)
    with pytest.raises(TopologyError, match=r"-1 bytes. It must not be negative"):
        max_bytes(-1)


def test_until_window_closes_needs_a_strict_buffer() -> None:
    assert until_window_closes() == Suppressed(None, unbounded(), None)
    bounded = until_window_closes(max_bytes(7).shut_down_when_full(), name="final")
    assert bounded.buffer.max_bytes == 7
    assert bounded.name == "final"
    assert bounded.final_results
    with pytest.raises(TopologyError, match=r"strict buffer.*unbounded"):
        until_window_closes(max_records(5))


def test_until_time_limit() -> None:
    assert until_time_limit("10s") == Suppressed(10_000, unbounded(), None)
    limited = until_time_limit(0, max_records(5), name="slow")
    assert limited == Suppressed(0, max_records(5), "slow")
    assert not limited.final_results
    with pytest.raises(TopologyError, match="must not be negative, got -1 ms"):
        until_time_limit(-1)
    with pytest.raises(TopologyError, match="time limit: invalid duration"):
        until_time_limit("soon")


def test_suppressions_are_values() -> None:
    suppressed = until_time_limit("1s", max_records(5).with_logging_enabled({"a": "b"}), name="x")
    assert pickle.loads(pickle.dumps(suppressed)) == suppressed
    assert len({suppressed, until_window_closes()}) == 2
