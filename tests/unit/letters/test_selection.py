"""Selecting and counting letters."""

from __future__ import annotations

import pytest

from penstock import RecordMetadata
from penstock.errors import ConfigError, SerializationError
from penstock.letters import Choice, Group, Span, grouped
from tests.unit.letters.letters import letter


@pytest.mark.parametrize(
    ("choice", "is_meant"),
    [
        (Choice(), True),
        (Choice(node="map"), True),
        (Choice(node="other"), False),
        (Choice(error="ValueError"), True),
        (Choice(error="Value"), False),
        (Choice(source_topic="in"), True),
        (Choice(source_topic="out"), False),
        (Choice(since_ms=1_000), True),
        (Choice(since_ms=1_001), False),
        (Choice(until_ms=1_001), True),
        (Choice(until_ms=1_000), False),
        (Choice(spans=(Span(0, 5, 8),)), True),
        (Choice(spans=(Span(1, 5, 8),)), False),
        (Choice(spans=(Span(0, 0, 4), Span(0, 5, 5))), True),
        (Choice(spans=(Span(0, 6, 8),)), False),
        (Choice(node="map", error="KeyError"), False),
    ],
)
def test_all_given_conditions_must_hold(choice: Choice, is_meant: bool) -> None:
    assert choice.takes(letter(5)) is is_meant


def test_an_error_may_be_named_with_its_module_or_without() -> None:
    found = letter(error=SerializationError("bad"))
    assert Choice(error="SerializationError").takes(found)
    assert Choice(error="penstock.errors.exceptions.SerializationError").takes(found)


def test_a_letter_without_a_source_matches_no_source_topic() -> None:
    assert not Choice(source_topic="in").takes(letter(source=None))


def test_spans_are_parsed() -> None:
    assert Span.read("3:17") == Span(3, 17, 17)
    assert Span.read("0:1-20") == Span(0, 1, 20)
    with pytest.raises(ConfigError, match="--offset: expected partition:offset"):
        Span.read("17")


def test_groups_have_counts_and_times_largest_first() -> None:
    some = [letter(0, time_ms=5), letter(1, node="other"), letter(2, time_ms=3), letter(3, source=None, time_ms=8)]
    assert grouped(some) == [
        Group("app", "map", "ValueError", "in", 2, 3, 5),
        Group("app", "map", "ValueError", "", 1, 8, 8),
        Group("app", "other", "ValueError", "in", 1, 1_000, 1_000),
    ]


def test_several_sources_are_several_groups() -> None:
    groups = grouped([letter(0), letter(1, source=RecordMetadata("elsewhere", 0, 0))])
    assert {group.source_topic for group in groups} == {"in", "elsewhere"}
