"""Where Penstock and Kafka Streams itself differ on purpose, and by how much."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from verification.conformance.compare import differences
from verification.conformance.oracle_process import Oracle
from verification.conformance.run import run
from verification.conformance.spec import Case, Op, Pipe, Settings

pytestmark = pytest.mark.jvm

GAP_MS = 200_000
LATE = "s:b@280000/280000"


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    with Oracle() as started:
        yield started


def sessions(*, caching: bool) -> Case:
    """A session of `b` whose segment the time of `a` drops, and a record within its gap that is not late."""
    ops = (
        Op("n0", "builder_stream", (), {"topic": "in"}),
        Op("n1", "stream_group_by_key", ("n0",), {}),
        Op("n2", "grouped_windowed_by", ("n1",), {"windows": {"type": "session", "size": GAP_MS}}),
        Op("n3", "sessions_count", ("n2",), {"store": {"name": "sessions"}}),
        Op("n4", "table_to_stream", ("n3",), {}),
        Op("n5", "stream_to", ("n4",), {"topic": "out", "key": "session:string", "value": "long"}),
    )
    steps = (Pipe("in", "b", "x", 199_999), Pipe("in", "a", "x", 400_001), Pipe("in", "b", "x", 280_000))
    return Case("expired", ops, steps, {"in": ("string", "string")}, settings=Settings(caching=caching))


def of_b(result: dict[str, Any]) -> dict[str, str]:
    return {key: value for key, value, *_ in result["stores"]["sessions"]["entries"] if key.startswith("s:b@")}


def test_a_session_that_only_a_cache_still_holds_is_merged_in_kafka_streams_and_not_here(oracle: Oracle) -> None:
    theirs, ours = (side(sessions(caching=True)) for side in (oracle.ask, run))
    assert of_b(theirs) == {"s:b@199999/280000": "l:2"}
    assert of_b(ours) == {LATE: "l:1"}


def test_without_a_cache_both_begin_a_session_of_its_own(oracle: Oracle) -> None:
    theirs, ours = (side(sessions(caching=False)) for side in (oracle.ask, run))
    assert of_b(theirs) == of_b(ours) == {LATE: "l:1"}
    assert differences(theirs, ours) == []
