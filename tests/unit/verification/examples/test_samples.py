"""Sample data: what a line means, and in which order records come."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.samples import Sample, samples


def test_a_line_is_a_record(tmp_path: Path) -> None:
    (tmp_path / "shop.orders.jsonl").write_text(
        '{"key": "a", "at": "1970-01-01T00:00:01Z", "value": {"cents": 5}}\n'
        '{"key": null, "at": "1970-01-01T00:00:01.500Z", "value": "text"}\n'
        '{"key": "a", "at": "1970-01-01T01:00:02+01:00", "value": null}\n'
    )
    assert samples(tmp_path) == [
        Sample("shop.orders", b"a", b'{"cents": 5}', 1_000),
        Sample("shop.orders", None, b"text", 1_500),
        Sample("shop.orders", b"a", None, 2_000),
    ]


def test_a_topic_keeps_its_order_and_of_several_the_earlier_record_comes_first(tmp_path: Path) -> None:
    for topic, seconds in (("a", (1, 4, 2)), ("b", (3, 5))):
        lines = [f'{{"key": "k", "at": "1970-01-01T00:00:0{second}Z", "value": "v"}}' for second in seconds]
        (tmp_path / f"{topic}.jsonl").write_text("\n".join(lines))
    assert [(sample.topic, sample.timestamp) for sample in samples(tmp_path)] == [
        ("a", 1_000),
        ("b", 3_000),
        ("a", 4_000),
        ("a", 2_000),
        ("b", 5_000),
    ]


def test_a_directory_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no sample data"):
        samples(tmp_path)
