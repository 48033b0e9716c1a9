"""Rows that are too large are found before anything is sent; what happens to them depends on their kind."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.epochs.wire import OUT
from penstock.errors import ProcessingError, ProductionError
from penstock.handlers import DeadLetter, ErrorHandler, Failure, FailureKind, LogAndContinue, log_and_continue, log_and_fail
from penstock.kafka.limits import SizeLimits
from penstock.kafka.preflight import HEADER_OVERHEAD, RECORD_OVERHEAD, Preflight
from penstock.letters import SIZE_HEADER

TOPICS = ["wide", "narrow", "app-words-changelog"]
LIMITS = {"wide": 10_000, "narrow": 1_000, "app-words-changelog": 1_000, "letters": 900}


def row(size: int, name: int = 1, **columns: Any) -> dict[str, Any]:
    """A row that counts as `size` bytes."""
    given_columns = {"kind": 1, "name": name, "topic": None, "partition": 3, "timestamp": 5, "key": b"key", "headers": None}
    return {**given_columns, "value": b"x" * (size - RECORD_OVERHEAD - 3), **columns}


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), schema=OUT)


def preflight(production: ErrorHandler = log_and_fail()) -> Preflight:  # noqa: B008 - a value
    return Preflight(TOPICS, limits(), production)


def limits(default: int = 20_000, largest: int = 30_000, **others: int) -> SizeLimits:
    """The limits of known topics; `others` are returned on request."""
    return SizeLimits(LIMITS, default, largest, others.get)


def test_rows_that_fit_are_returned_unchanged() -> None:
    rows = batch(row(1_000), row(10_000, 0), row(1_000, kind=2, name=2), row(150, value=None, key=None, timestamp=0))
    assert preflight().check(rows) is rows
    assert preflight().check(batch()).num_rows == 0


def test_a_topic_chosen_by_a_record_has_its_own_limit() -> None:
    preflight().check(batch(row(20_000, -1, topic="elsewhere"), row(900, -1, topic="letters")))
    with pytest.raises(ProductionError, match="too large for topic 'elsewhere', which accepts 20000 bytes"):
        preflight().check(batch(row(20_001, -1, topic="elsewhere")))
    with pytest.raises(ProductionError, match="too large for topic 'letters', which accepts 900 bytes"):
        preflight().check(batch(row(901, -1, topic="letters")))


def test_the_limit_of_the_client_counts_too() -> None:
    with pytest.raises(ProductionError, match="which accepts 500"):
        Preflight(TOPICS, limits(largest=500), log_and_fail()).check(batch(row(501, 0)))


def test_a_small_topic_does_not_limit_others() -> None:
    checked = Preflight(TOPICS, limits(default=500, tiny=300), log_and_fail())
    large = batch(row(10_000, 0), row(1_000, 1), row(300, -1, topic="tiny"), row(900, -1, topic="letters"))
    assert checked.check(large) is large
    with pytest.raises(ProductionError, match="too large for topic 'tiny', which accepts 300 bytes"):
        checked.check(batch(row(10_000, 0), row(301, -1, topic="tiny")))


def test_the_limit_of_a_chosen_topic_is_queried_until_it_exists() -> None:
    asked: list[str] = []
    sizes: dict[str, int] = {}

    def ask(topic: str) -> int | None:
        asked.append(topic)
        return sizes.get(topic)

    checked = Preflight(TOPICS, SizeLimits(LIMITS, 500, 30_000, ask), log_and_fail())
    rows = batch(row(200, -1, topic="new"), row(300, -1, topic="new"), row(200, 0), row(200, -1, topic="letters"))
    checked.check(rows)
    sizes["new"] = 25_000
    checked.check(rows)
    checked.check(batch(row(25_000, -1, topic="new")))
    assert asked == ["new", "new"]


def test_by_default_a_record_that_is_too_large_ends_the_application() -> None:
    with pytest.raises(
        ProductionError, match="A record of 1001 bytes with key b'key' is too large for topic 'narrow', which accepts 1000 bytes"
    ):
        preflight().check(batch(row(1_000), row(1_001)))


def test_headers_count() -> None:
    headers = [{"name": "h", "value": b"x" * 400}, {"name": "i", "value": None}]
    size = 402 + 2 * HEADER_OVERHEAD
    preflight().check(batch(row(900, headers=None), row(1_000 - size, headers=headers), row(200, headers=[])))
    with pytest.raises(ProductionError, match="A record of 1001 bytes"):
        preflight().check(batch(row(200, headers=[]), row(1_001 - size, headers=headers)))


def test_the_handler_may_skip_a_record_that_is_too_large() -> None:
    asked: list[Failure] = []

    def leave_out(failure: Failure) -> LogAndContinue:
        asked.append(failure)
        return log_and_continue()

    kept = preflight(leave_out).check(batch(row(500, key=b"abc"), row(1_001), row(600)))
    assert [len(value) for value in kept.column("value").to_pylist()] == [500 - 103, 600 - 103]
    (failure,) = asked
    assert (failure.kind, failure.node) == (FailureKind.PRODUCTION, "the sink of 'narrow'")
    assert (failure.key, failure.timestamp, len(failure.value or b"")) == (b"key", 5, 1_001 - 103)
    assert "1001 bytes" in str(failure.error)


def test_the_handler_may_turn_it_into_a_dead_letter() -> None:
    (letter,) = preflight(DeadLetter("letters")).check(batch(row(5_000))).to_pylist()
    assert (letter["kind"], letter["name"], letter["topic"], letter["partition"]) == (3, -1, "letters", None)
    assert (letter["key"], letter["value"], letter["timestamp"]) == (b"key", None, 5)
    headers = {header["name"]: header["value"] for header in letter["headers"]}
    assert headers[SIZE_HEADER] == b"5000"
    assert b"too large for topic 'narrow'" in headers["__streams.errors.message"]


def test_a_handler_that_fails_ends_the_application() -> None:
    with pytest.raises(ProcessingError, match=r"error handler .* failed: ZeroDivisionError"):
        preflight(lambda failure: 1 // 0).check(batch(row(5_000)))  # type: ignore[arg-type, return-value]


def test_a_changelog_row_that_is_too_large_ends_the_application_whatever_the_handler_says() -> None:
    with pytest.raises(ProductionError, match=r"'app-words-changelog', which accepts 1000 bytes\. Store less under this key"):
        preflight(log_and_continue()).check(batch(row(1_001, 2, kind=2)))


def test_a_dead_letter_that_is_too_large_loses_its_value() -> None:
    headers = [{"name": "__streams.errors.message", "value": b"boom"}]
    (letter,) = preflight().check(batch(row(2_000, -1, topic="letters", kind=3, headers=headers))).to_pylist()
    assert letter["value"] is None
    assert letter["topic"] == "letters"
    size = 2_000 + len("__streams.errors.messageboom") + HEADER_OVERHEAD
    assert [tuple(header.values()) for header in letter["headers"]] == [
        ("__streams.errors.message", b"boom"),
        (SIZE_HEADER, str(size).encode()),
    ]


def test_a_dead_letter_too_large_without_its_value_ends_the_application() -> None:
    with pytest.raises(ProductionError, match="Its key and headers alone are too large for dead-letter topic 'letters'"):
        preflight().check(batch(row(2_000, -1, topic="letters", kind=3, key=b"k" * 900)))


headers = st.none() | st.lists(
    st.fixed_dictionaries({"name": st.text(max_size=5), "value": st.none() | st.binary(max_size=300)}), max_size=3
)
rows_of_any_size = st.lists(
    st.builds(
        lambda name, key, value, headers: row(200, name, key=key, value=value, headers=headers, topic="letters"),
        st.sampled_from([-1, 0, 1]),
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=2_000),
        headers,
    )
)


@given(rows_of_any_size, st.integers(0, 3))
def test_all_rows_that_fit_are_kept(rows: list[dict[str, Any]], skip: int) -> None:
    def size(one: dict[str, Any]) -> int:
        each = [len(h["name"].encode()) + len(h["value"] or b"") + HEADER_OVERHEAD for h in one["headers"] or ()]
        return len(one["key"] or b"") + len(one["value"] or b"") + sum(each) + RECORD_OVERHEAD

    allowed = {-1: 900, 0: 10_000, 1: 1_000}
    sliced = batch(*rows).slice(min(skip, len(rows)))
    expected = [one for one in rows[skip:] if size(one) <= allowed[one["name"]]]
    assert preflight(log_and_continue()).check(sliced).to_pylist() == batch(*expected).to_pylist()
