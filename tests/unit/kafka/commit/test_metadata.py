"""Commit metadata is read as it was written, or refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.kafka.commit import CommitMetadata

METADATA = CommitMetadata(
    epoch=2**40, incarnation="1" * 32, fingerprint="0123456789abcdef", lanes=8, shards=32, high_time=2**62, topic_id="dGVzdA"
)

numbers = st.integers(0, 2**62)
texts = st.text(max_size=20)
metadata = st.builds(
    CommitMetadata,
    epoch=numbers,
    incarnation=texts,
    fingerprint=texts,
    lanes=st.integers(1, 2**31),
    shards=st.integers(1, 2**31),
    high_time=st.integers(-1, 2**62),
    topic_id=st.none() | texts,
)


@given(metadata)
def test_round_trip(written: CommitMetadata) -> None:
    assert CommitMetadata.decode(written.encode()) == written


def test_is_short_and_has_a_version() -> None:
    assert len(METADATA.encode()) < 250
    assert '"version":1' in METADATA.encode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "not json",
        METADATA.encode()[:-1],
        METADATA.encode().replace('"version":1', '"version":2'),
        METADATA.encode().replace('"lanes":8', '"lanes":"8"'),
        METADATA.encode().replace('"lanes":8', '"lanes":0'),
        METADATA.encode().replace('"epoch":1', '"epoch":-1'),
        METADATA.encode().replace('"shards"', '"sharps"'),
        "\ud800",
    ],
)
def test_refuses_what_it_cannot_read(text: str) -> None:
    with pytest.raises(StateError, match="This version cannot read the committed metadata"):
        CommitMetadata.decode(text)


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with pytest.raises(StateError):
        CommitMetadata.decode(text)


def test_refuses_to_write_more_than_a_broker_accepts() -> None:
    with pytest.raises(StateError, match="exceeds the 4096 bytes"):
        replace(METADATA, fingerprint="x" * 4_096).encode()
