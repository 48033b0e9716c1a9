"""Record size limits of topics that only a record names."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from penstock.errors import BrokerError, ConfigError, PenstockError
from penstock.kafka.limits import DEFAULT_TOPIC_BYTES, default_size, size_of
from penstock.kafka.topics import Topic, Topics


class Asked(Topics):
    """Topics known without a broker."""

    def __init__(self, *found: Topic, failure: PenstockError | None = None) -> None:
        self._found = {topic.name: topic for topic in found}
        self._failure = failure

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        if self._failure is not None:
            raise self._failure
        return {name: self._found[name] for name in names if name in self._found}


def test_an_existing_topic_has_its_own_limit() -> None:
    topics = Asked(Topic("large", "id", 1, {"max.message.bytes": "5000000"}))
    assert (size_of(topics, "large"), size_of(topics, "other")) == (5_000_000, None)


def test_a_topic_with_unreadable_settings_has_no_limit_of_its_own() -> None:
    assert size_of(Asked(failure=ConfigError("not allowed")), "large") is None
    with pytest.raises(BrokerError):
        size_of(Asked(failure=BrokerError("out of reach")), "large")


def test_by_default_a_topic_has_the_limit_of_its_broker() -> None:
    assert default_size({"message.max.bytes": "2000"}) == 2_000
    assert default_size({}) == DEFAULT_TOPIC_BYTES
