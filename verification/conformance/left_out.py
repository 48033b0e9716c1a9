"""The list of everything that is not compared, with reasons. Any other difference is a bug."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LeftOut:
    """One thing that is not compared; `stores` are parts of the names of the affected stores.

    `failure` is the cause of a failure within Kafka Streams itself, after which there is nothing to compare with.
    """

    name: str
    reason: str
    stores: tuple[str, ...] = ()
    failure: str | None = None


LEFT_OUT = (
    LeftOut(
        "content of suppress and stream–table join buffers",
        "Kafka Streams offers no way to read them; their output is compared",
        ("KTABLE-SUPPRESS-STATE-STORE", "-buffer"),
    ),
    LeftOut(
        "content of foreign-key subscription stores",
        "their keys and values are internal to Kafka Streams; the join's result is compared",
        ("KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE", "-subscription-store"),
    ),
    LeftOut(
        "content of the store of unmatched records of left and outer stream–stream joins",
        "its keys and values are internal to Kafka Streams; the join's result is compared",
        ("-shared-join-store", "KSTREAM-OUTERSHARED", "KSTREAM-LEFTSHARED"),
    ),
    LeftOut(
        "content of join window stores whose window has no length (within 0)",
        "Kafka Streams' own iterator refuses to name such windows; the join's result is compared",
    ),
    LeftOut(
        "Kafka Streams' in-memory window and session stores",
        "they expire records one by one, but RocksDB, the default, expires segments; Penstock follows the default",
    ),
    LeftOut(
        "records without a key in a left join of a stream with a table that has a grace period",
        "Kafka Streams itself fails on them with a NullPointerException; without grace it joins them with nothing",
        failure="java.lang.NullPointerException: key cannot be null",
    ),
    LeftOut(
        "sliding windows in a cache after a window's aggregate became null",
        "Kafka Streams itself fails on them with a NullPointerException; without a cache it does not",
        failure='java.lang.NullPointerException: Cannot invoke "org.apache.kafka.streams.state.ValueAndTimestamp.value()"'
        ' because "next.value" is null',
    ),
    LeftOut(
        "the application's id before the name of an internal topic in a record's metadata",
        "Penstock's exchanges are not topics; the rest of the name is compared",
    ),
    LeftOut(
        "record caches above the stores of processors",
        "off by default, and Penstock has none there; Kafka Streams' shows deleted and expired entries when it is scanned",
    ),
    LeftOut(
        "order of names within one list of describe(), and the identity of a topic extractor",
        "Kafka Streams takes the first from the iteration order of a hash map, the second is an address in memory",
    ),
    LeftOut(
        "expired windows that the record cache above a store still shows",
        "they depend on the cache's size: stores are read below it, after its last flush",
    ),
    LeftOut(
        "record caches above sessions, in cases whose durations are long enough for several segments",
        "a session whose segment is dropped is found and merged for as long as Kafka Streams' cache holds it, which depends on "
        "the cache's size; Penstock drops it with its segment. And Kafka Streams itself fails (segment interval has changed) if "
        "the gap of a session reaches more than a segment behind 1970. They are compared without a cache",
    ),
    LeftOut(
        "windowed cogroups of several streams with a record cache",
        "each stream has its own time and one can be late for the store they share; what it then finds depends on the cache's "
        "size. They are compared without a cache, and with one if a single stream feeds them",
    ),
    LeftOut(
        "order of entries when window and session stores are read whole",
        "it differs between Kafka Streams' own store types; entries are compared sorted",
    ),
)


def is_left_out_failure(cause: str) -> bool:
    """Whether a failure of the oracle is a bug of Kafka Streams itself."""
    return any(item.failure == cause for item in LEFT_OUT)


def is_left_out(store: str) -> bool:
    """Whether the content of this store is not compared."""
    return any(part in store for item in LEFT_OUT for part in item.stores)
