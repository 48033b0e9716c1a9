"""How a store's changelog is kept, as Kafka Streams keeps it."""

from __future__ import annotations

import pytest

from penstock.kafka.topics import DAY_MS, changelog_config
from penstock.serdes import String
from penstock.state import StoreKind, StoreSpec


def spec(kind: StoreKind, retention_ms: int | None = None, **settings: str) -> StoreSpec:
    config = tuple((name.replace("_", "."), value) for name, value in settings.items())
    text = String()
    return StoreSpec("store", kind, text, text, retention_ms, window_size_ms=10, changelog_config=config)


@pytest.mark.parametrize("kind", [StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED])
def test_a_table_is_compacted(kind: StoreKind) -> None:
    assert changelog_config(spec(kind)) == {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION])
def test_windows_and_sessions_are_deleted_a_day_after_their_retention(kind: StoreKind) -> None:
    config = changelog_config(spec(kind, 1_000))
    assert (config["cleanup.policy"], config["retention.ms"]) == ("compact,delete", str(1_000 + DAY_MS))


def test_versions_are_not_compacted_before_their_history_is_over() -> None:
    config = changelog_config(spec(StoreKind.VERSIONED, 1_000))
    assert (config["cleanup.policy"], config["min.compaction.lag.ms"]) == ("compact", str(1_000 + DAY_MS))
    assert "retention.ms" not in config


def test_the_stores_own_settings_come_last() -> None:
    config = changelog_config(spec(StoreKind.WINDOW, 1_000, cleanup_policy="delete", segment_bytes="5"))
    assert (config["cleanup.policy"], config["segment.bytes"]) == ("delete", "5")
