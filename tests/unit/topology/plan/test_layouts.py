"""The written form of a store's layout, byte by byte: after an upgrade, committed state is compared with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Topology
from penstock.serdes import Int64, Json, List, Serde, String, TimeWindowed
from penstock.state import Sharing, StoreKind, StoreSpec
from penstock.topology.plan import encode_facts, facts, fingerprint, layout
from penstock.topology.plan.layouts import LAYOUT


class Own(Serde[Any]):
    """A user's serde; its private attributes are not written."""

    def __init__(self, secret: str) -> None:
        self.secret = secret

    def serialize(self, value: Any) -> bytes:
        return bytes(value)

    def deserialize(self, data: bytes) -> Any:
        return data


@dataclass
class Order:
    amount: int
    note: str = ""


KV, TABLE = StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED
STORES: dict[str, StoreSpec] = {
    spec.name: spec
    for spec in (
        StoreSpec("plain", KV, String(), Int64()),
        StoreSpec("table", TABLE, String(), Json(), cached=True),
        StoreSpec("expiring", TABLE, String(), Json(dict), ttl_ms=1_000),
        StoreSpec("shared", KV, String(), Int64(), sharing=Sharing()),
        StoreSpec("shared-table", TABLE, String(), Int64(), sharing=Sharing()),
        StoreSpec("unlogged", KV, Own("key"), List(Own("value")), logged=False),
        StoreSpec("windows", StoreKind.WINDOW, TimeWindowed(String(), 1_000), Int64(), 9_000, 1_000),
        StoreSpec("twice", StoreKind.WINDOW, String(), Int64(), 9_000, 1_000, 100_000, retain_duplicates=True),
        StoreSpec("by-time", StoreKind.TIMESTAMPED_WINDOW, String(), Int64(), 9_000, 1_000, time_ordered=True),
        StoreSpec("sessions", StoreKind.SESSION, String(), Int64(), 0),
        StoreSpec("versions", StoreKind.VERSIONED, String(), Int64(), 60_000, changelog_config=(("a", "b"),)),
        StoreSpec("raw", StoreKind.RAW),
        StoreSpec("timers", StoreKind.TIMERS, String()),
        StoreSpec("ready", TABLE, String(), Json(), aggregates="agg(n=count())"),
    )
}

TYPED = StoreSpec("typed", TABLE, String(), Json(Order), version=2)

WRITTEN: dict[str, tuple[str, str]] = {
    "plain": ('{"kind":"key_value","key":"String()","value":"Int64()"}', "5c7ed898862c2a1d"),
    "table": ('{"kind":"timestamped","key":"String()","value":"Json()"}', "dc710d8cd110ea6c"),
    "expiring": ('{"kind":"timestamped","ttl":"with a TTL","key":"String()","value":"Json(dict)"}', "a9b6257eaa0d33d1"),
    "shared": ('{"kind":"key_value","shared":"by its own keys","key":"String()","value":"Int64()"}', "7e22e565375778bd"),
    "shared-table": ('{"kind":"timestamped","key":"String()","value":"Int64()"}', "4550544f13dc14f3"),
    "unlogged": ('{"kind":"key_value","key":"Own","value":"List(Own)","log":"none"}', "79716c0c69930a66"),
    "windows": (
        '{"kind":"window","retention":"9000 ms","window":"1000 ms","key":"TimeWindowed(String(), 1000)","value":"Int64()"}',
        "d85cc7c097155838",
    ),
    "twice": (
        (
            '{"kind":"window","retention":"9000 ms","window":"1000 ms","segments":"100000 ms","duplicates":"True",'
            '"key":"String()","value":"Int64()"}'
        ),
        "735c09eab2544f59",
    ),
    "by-time": (
        (
            '{"kind":"timestamped_window","retention":"9000 ms","window":"1000 ms","order":"by time",'
            '"key":"String()","value":"Int64()"}'
        ),
        "08fb0082174626ac",
    ),
    "sessions": ('{"kind":"session","retention":"0 ms","key":"String()","value":"Int64()"}', "bb4b7bd6499f1190"),
    "versions": ('{"kind":"versioned","retention":"60000 ms","key":"String()","value":"Int64()"}', "c520be7e278d6784"),
    "raw": ('{"kind":"raw"}', "50f5662ab4207665"),
    "timers": ('{"kind":"timers","key":"String()"}', "885b1f5e4e7b2484"),
    "ready": ('{"kind":"timestamped","key":"String()","value":"Json()","aggregates":"agg(n=count())"}', "48b23a1ad54be9e8"),
}
"""The layout as facts contain it, and the fingerprint of a topology with only this store."""

ALL = "9b6e6553932d83d7"
"""The fingerprint of a topology with all of these stores."""


@pytest.mark.parametrize("name", STORES)
def test_the_written_form_of_a_layout_does_not_change(name: str) -> None:
    text, _ = WRITTEN[name]
    assert encode_facts(facts(of(STORES[name]), "f")) == (
        b'{"fingerprint":"f","stores":{"%s":%s},"sources":[],"version":1,"gone":[],"incarnation":"","topic_ids":{},"restoring":""}'
        % (name.encode(), text.encode())
    )


@pytest.mark.parametrize("name", STORES)
def test_a_fingerprint_does_not_change(name: str) -> None:
    _, digest = WRITTEN[name]
    assert fingerprint(of(STORES[name])) == digest


def test_the_fingerprint_of_many_stores_does_not_change() -> None:
    assert fingerprint(of(*STORES.values())) == ALL


def test_every_word_of_a_layout_and_every_kind_of_store_is_covered() -> None:
    assert {word for spec in (*STORES.values(), TYPED) for word in layout(spec)} == {entry.word for entry in LAYOUT}
    assert {spec.kind for spec in STORES.values()} == set(StoreKind)


def test_fields_and_the_version_of_values_are_written() -> None:
    assert layout(TYPED) == {
        "kind": "timestamped",
        "version": "2",
        "key": "String()",
        "value": "Json(Order)",
        "fields": "amount, note?",
    }


def of(*specs: StoreSpec) -> Topology:
    topology = Topology()
    for spec in specs:
        topology.add_state_store(spec)
    return topology
