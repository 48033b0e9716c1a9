"""Whether committed state can be used under another topology, and why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock import Store, StreamsBuilder, Topology, key_value_store, session, tumbling, window_store
from penstock.errors import StateError
from penstock.serdes import Int64, Json, Serde, SessionWindowed, String, TimeWindowed
from penstock.state import StoreKind, StoreSpec
from penstock.topology.plan import TopologyFacts, decode_facts, encode_facts, facts, incompatibilities, remembered


def facts_of(declare: Callable[[StreamsBuilder], Any]) -> TopologyFacts:
    builder = StreamsBuilder()
    declare(builder)
    return facts(builder.build(), "fingerprint")


def counts(builder: StreamsBuilder) -> None:
    builder.stream("in", value=str).group_by_key().count(store="s")


def changed(before: StoreSpec, **changes: Any) -> list[str]:
    """The incompatibilities when a store of that name has changed."""
    return incompatibilities(_facts(before), _facts(replace(before, **changes)))


def _facts(spec: StoreSpec) -> TopologyFacts:
    return facts(Topology().add_state_store(spec), "fingerprint")


TABLE = StoreSpec("s", StoreKind.TIMESTAMPED, key=String(), value=Int64())
WINDOWS = StoreSpec("s", StoreKind.WINDOW, key=String(), value=Int64(), retention_ms=9_000, window_size_ms=1_000)


class TestGrowth:
    def test_the_same_topology_is_compatible(self) -> None:
        assert incompatibilities(facts_of(counts), facts_of(counts)) == []

    def test_stores_may_come_and_go(self) -> None:
        def more(builder: StreamsBuilder) -> None:
            counts(builder)
            builder.stream("other", value=str).group_by_key().count(store="t")

        assert incompatibilities(facts_of(counts), facts_of(more)) == []
        assert incompatibilities(facts_of(more), facts_of(counts)) == []

    def test_settings_that_no_changelog_depends_on_may_change(self) -> None:
        assert changed(TABLE, cached=True) == []
        assert changed(TABLE, changelog_config=(("retention.ms", "1"),)) == []
        assert changed(replace(TABLE, ttl_ms=5), ttl_ms=6) == []

    def test_global_stores_have_their_topic_instead(self) -> None:
        before = facts_of(lambda builder: builder.global_table("in", value=str, store="g"))
        after = facts_of(lambda builder: builder.global_table("in", value=int, store="g"))
        assert before.stores == {}
        assert incompatibilities(before, after) == []


class TestLogs:
    """A changelog that was not written for a while must not be read."""

    UNLOGGED = replace(TABLE, logged=False)

    def test_a_changelog_may_be_removed(self) -> None:
        assert changed(TABLE, logged=False) == []
        assert changed(self.UNLOGGED) == []

    def test_it_may_not_be_added_again(self) -> None:
        [said] = changed(self.UNLOGGED, logged=True)
        assert said.startswith("store 's': it had no changelog and now has one")

    def test_it_may_not_be_added_after_the_store_was_removed_for_a_while(self) -> None:
        known = remembered(remembered(_facts(TABLE), _facts(self.UNLOGGED)), facts(Topology(), "without"))
        assert known.gone == ["s"]
        assert incompatibilities(known, _facts(TABLE)) != []

    def test_the_rest_of_its_layout_counts_without_one_too(self) -> None:
        assert changed(TABLE, logged=False, value=String()) == ["store 's': value was Int64() and is String()"]


class TestSources:
    def test_sources_are_stored_with_the_incarnation_that_reads_them(self) -> None:
        def reading(builder: StreamsBuilder) -> None:
            builder.stream("in", value=str)
            builder.stream(re.compile("more-.*"), value=str)
            builder.global_table("facts", value=str, store="g")
            builder.schedule("beat", every="1s")

        builder = StreamsBuilder()
        reading(builder)
        found = facts(builder.build(), "fingerprint", "start-1")
        assert (found.sources, found.incarnation) == (["in", "more-.*"], "start-1")
        assert decode_facts(encode_facts(found)) == found


class TestChanges:
    @pytest.mark.parametrize(
        ("before", "changes", "said"),
        [
            (TABLE, {"value": String()}, "value was Int64() and is String()"),
            (TABLE, {"key": Json()}, "key was String() and is Json()"),
            (TABLE, {"ttl_ms": 1_000}, "ttl was none and is with a TTL"),
            (TABLE, {"kind": StoreKind.KEY_VALUE}, "kind was timestamped and is key_value"),
            (WINDOWS, {"retention_ms": 8_000}, "retention was 9000 ms and is 8000 ms"),
            (WINDOWS, {"window_size_ms": 2_000}, "window was 1000 ms and is 2000 ms"),
            (WINDOWS, {"segment_interval_ms": 100_000}, "segments was none and is 100000 ms"),
            (WINDOWS, {"retain_duplicates": True}, "duplicates was none and is True"),
            (WINDOWS, {"time_ordered": True}, "order was none and is by time"),
        ],
    )
    def test_a_layout_that_changed_is_named(self, before: StoreSpec, changes: dict[str, Any], said: str) -> None:
        assert changed(before, **changes) == [f"store 's': {said}"]

    def test_all_that_changed_in_a_store_is_one_line(self) -> None:
        [line] = changed(WINDOWS, kind=StoreKind.TIMESTAMPED_WINDOW, window_size_ms=2_000)
        assert line == "store 's': kind was window and is timestamped_window; window was 1000 ms and is 2000 ms"

    def test_every_store_that_changed_has_a_line(self) -> None:
        def two(kind: Any) -> Callable[[StreamsBuilder], None]:
            def declare(builder: StreamsBuilder) -> None:
                for name in ("a", "b"):
                    builder.table(name, value=kind, store=name)

            return declare

        lines = incompatibilities(facts_of(two(str)), facts_of(two(int)))
        assert [line.split(":")[0] for line in lines] == ["store 'a'", "store 'b'"]

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (tumbling("1s", grace="0s"), tumbling("2s", grace="0s")),
            (tumbling("1s", grace="0s"), tumbling("1s", grace="5h")),
            (tumbling("1s", grace="0s"), session("1s", grace="0s")),
        ],
    )
    def test_other_windows_are_another_store(self, before: Any, after: Any) -> None:
        def windowed(windows: Any) -> Callable[[StreamsBuilder], Any]:
            return lambda builder: builder.stream("in", value=str).group_by_key().windowed_by(windows).count(store="s")

        assert incompatibilities(facts_of(windowed(before)), facts_of(windowed(after)))

    def test_a_windowed_key_of_another_size_is_another_key(self) -> None:
        sizes = [replace(TABLE, key=TimeWindowed(String(), size)) for size in (1_000, 2_000)]
        assert incompatibilities(_facts(sizes[0]), _facts(sizes[1]))
        assert incompatibilities(_facts(sizes[0]), _facts(replace(TABLE, key=SessionWindowed(String()))))


class Own(Serde[Any]):
    """A user's serde, with a function and a secret in it."""

    def __init__(self, dumps: Callable[[Any], bytes], secret: str = "") -> None:
        self.dumps = dumps
        self.secret = secret

    def serialize(self, value: Any, /) -> bytes:
        return self.dumps(value)

    def deserialize(self, data: bytes, /) -> Any:
        return data


class TestOwnSerdes:
    @pytest.mark.parametrize("wrapped", [lambda serde: serde, lambda serde: TimeWindowed(serde, 1_000)])
    def test_a_serde_is_the_same_one_in_another_process(self, wrapped: Callable[[Serde[Any]], Serde[Any]]) -> None:
        before, after = (replace(TABLE, key=wrapped(Own(lambda value: b"")), value=Own(lambda value: b"")) for _ in range(2))
        assert incompatibilities(_facts(before), _facts(after)) == []

    def test_its_private_parts_are_not_written_to_a_topic(self) -> None:
        assert b"hunter2" not in encode_facts(_facts(replace(TABLE, value=Own(bytes, "hunter2"))))

    def test_another_class_is_another_serde(self) -> None:
        assert changed(TABLE, value=Own(bytes)) == ["store 's': value was Int64() and is Own"]


class TestRemembered:
    def test_a_removed_store_is_still_known_when_it_returns_with_another_layout(self) -> None:
        first = facts_of(counts)
        second = remembered(first, facts_of(lambda builder: builder.stream("in").to("out")))
        third = facts_of(lambda builder: builder.table("in", value=str, store="s"))
        assert incompatibilities(second, third) == ["store 's': value was Int64() and is String()"]
        assert incompatibilities(second, first) == []

    def test_the_current_layout_of_a_store_is_stored(self) -> None:
        first, second = _facts(WINDOWS), _facts(replace(WINDOWS, retention_ms=8_000))
        assert remembered(first, second).stores == second.stores
        assert remembered(None, first) == first


class TestWritten:
    def test_facts_are_read_as_they_were_written(self) -> None:
        def declare(builder: StreamsBuilder) -> None:
            counts(builder)
            builder.add_state_store(key_value_store("own", key=bytes, value=str))
            builder.add_state_store(window_store("w", retention="1h", window_size="1m", key=bytes, value=str))
            builder.table("other", value=int, store=Store("t", history="1h"))

        found = facts_of(declare)
        assert decode_facts(encode_facts(found)) == found
        assert set(found.stores) == {"s", "own", "w", "t"}
        assert found.sources == ["in", "other"]

    def test_a_source_by_pattern_is_its_pattern(self) -> None:
        assert facts_of(lambda builder: builder.stream(re.compile("in-.*")).to("out")).sources == ["in-.*"]

    def test_exchanges_are_not_sources(self) -> None:
        def declare(builder: StreamsBuilder) -> None:
            builder.stream("in", value=str).select_key(lambda key, value: value).group_by_key().count(store="s")

        assert facts_of(declare).sources == ["in"]

    def test_facts_of_a_later_version_are_readable(self) -> None:
        written = encode_facts(facts_of(counts))
        grown = written[:-1] + b',"more":1}'
        assert decode_facts(grown) == facts_of(counts)

    def test_invalid_facts_are_rejected(self) -> None:
        with pytest.raises(StateError, match="This version cannot read the topology facts"):
            decode_facts(b"not facts")
