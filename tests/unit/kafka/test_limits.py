"""How large records may be in topics that only a record names."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from penstock.errors import BrokerError, ConfigError, PenstockError
from penstock.kafka.limits import DEFAULT_TOPIC_BYTES, default_size, size_of
from penstock.kafka.topics import Topic, Topics


class Asked(Topics):
    """Topics that a broker is not asked for."""

    def __init__(self, *found: Topic, failure: PenstockError | None = None) -> None:
        self._found = {topic.name: topic for topic in found}
        self._failure = failure

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        if self._failure is not None:
            raise self._failure
        return {name: self._found[name] for name in names if name in self._found}


def test_a_topic_says_what_it_takes_if_it_is_there() -> None:
    topics = Asked(Topic("large", "id", 1, {"max.message.bytes": "5000000"}))
    assert (size_of(topics, "large"), size_of(topics, "other")) == (5_000_000, None)


def test_a_topic_whose_settings_are_not_for_everybody_has_no_limit_of_its_own() -> None:
    assert size_of(Asked(failure=ConfigError("not allowed")), "large") is None
    with pytest.raises(BrokerError):
        size_of(Asked(failure=BrokerError("out of reach")), "large")


def test_by_default_a_topic_takes_what_its_broker_says() -> None:
    assert default_size({"message.max.bytes": "2000"}) == 2_000
    assert default_size({}) == DEFAULT_TOPIC_BYTES
