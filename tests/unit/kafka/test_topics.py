"""The settings of a store's changelog, as Kafka Streams chooses them."""

from __future__ import annotations

import pytest

from penstock.errors import TopicError
from penstock.kafka.topics import DAY_MS, LONGEST_MS, TOMBSTONES_MS, InternalTopic, Topic, changelog_config, check
from penstock.serdes import String
from penstock.state import StoreKind, StoreSpec


def spec(kind: StoreKind, retention_ms: int | None = None, **settings: str) -> StoreSpec:
    config = tuple((name.replace("_", "."), value) for name, value in settings.items())
    text = String()
    return StoreSpec("store", kind, text, text, retention_ms, window_size_ms=10, changelog_config=config)


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED])
def test_a_table_is_compacted(kind: StoreKind) -> None:
    assert changelog_config(spec(kind)) == {
        "cleanup.policy": "compact",
        "delete.retention.ms": "86400000",
        "message.timestamp.type": "CreateTime",
    }


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION])
def test_windows_and_sessions_are_deleted_a_day_after_their_retention(kind: StoreKind) -> None:
    config = changelog_config(spec(kind, 1_000))
    assert (config["cleanup.policy"], config["retention.ms"]) == ("compact,delete", str(1_000 + DAY_MS))


def test_versions_are_not_compacted_within_their_history_retention() -> None:
    config = changelog_config(spec(StoreKind.VERSIONED, 1_000))
    assert (config["cleanup.policy"], config["min.compaction.lag.ms"]) == ("compact", str(1_000 + DAY_MS))
    assert "retention.ms" not in config


def test_windows_that_are_kept_forever_have_a_retention_that_a_topic_accepts() -> None:
    assert changelog_config(spec(StoreKind.WINDOW, LONGEST_MS))["retention.ms"] == str(LONGEST_MS)
    assert changelog_config(spec(StoreKind.VERSIONED, LONGEST_MS))["min.compaction.lag.ms"] == str(LONGEST_MS)


def test_the_stores_own_settings_win() -> None:
    config = changelog_config(spec(StoreKind.WINDOW, 1_000, cleanup_policy="delete", segment_bytes="5"))
    assert (config["cleanup.policy"], config["segment.bytes"]) == ("delete", "5")


def found(policy: str, tombstones_ms: int) -> Topic:
    return Topic("app-store-changelog", "id", 4, {"cleanup.policy": policy, "delete.retention.ms": str(tombstones_ms)})


def test_a_changelog_that_drops_tombstones_too_early_is_refused() -> None:
    wanted = InternalTopic("app-store-changelog", 4, changelog_config(spec(StoreKind.KEY_VALUE)))
    check(wanted, found("compact", TOMBSTONES_MS))
    with pytest.raises(TopicError, match=r"'app-store-changelog' has delete.retention.ms 60000 but needs at least 86400000"):
        check(wanted, found("compact", 60_000))


def test_a_changelog_that_is_not_compacted_has_no_tombstones_to_check() -> None:
    by_age = InternalTopic("app-store-changelog", 4, changelog_config(spec(StoreKind.WINDOW, 1_000, cleanup_policy="delete")))
    check(by_age, found("delete", 60_000))
