"""Runs a case through Penstock's test driver and renders the result as the oracle does."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from penstock import Windowed
from penstock.records import ValueAndTimestamp
from penstock.state.sessions import SessionStore
from penstock.state.timestamped import TimestampedKeyValueStore
from penstock.state.versioned import VersionedKeyValueStore
from penstock.state.windows import WindowStore
from penstock.testing import TopologyTestDriver
from verification.conformance.build import Effects, build
from verification.conformance.functions import show
from verification.conformance.spec import Advance, Case, Pipe, Step

Result = dict[str, Any]


def run(case: Case) -> Result:
    """The case's result: description, outputs by topic, store contents, effects; or its failure."""
    result: Result = {"id": case.id}
    step = -1
    with tempfile.TemporaryDirectory(prefix="penstock") as folder:
        effects = Effects(Path(folder))
        try:
            topology = build(case, effects)
            result["describe"] = topology.describe()
            outputs: dict[str, list[Any]] = {}
            settings = case.settings
            with TopologyTestDriver(topology, wall_clock=settings.wall_clock, caching=settings.caching) as driver:
                driver.seed = None  # processors live as long as the driver, as in Kafka Streams'
                for step, one in enumerate(case.steps):
                    _take(case, driver, one)
                    _drain(driver, step, outputs)
                result["stores"] = {name: _content(case, kept) for name, kept in _committed_stores(driver).items()}
            result["outputs"] = outputs
            result["effects"] = effects.seen()
        except Exception as error:  # noqa: BLE001 - a failing case is a result
            result["error"] = {"step": step, "class": type(error).__name__, "message": str(error)}
    return result


def _take(case: Case, driver: TopologyTestDriver, step: Step) -> None:
    if isinstance(step, Advance):
        driver.advance_wall_clock(step.ms)
        return
    assert isinstance(step, Pipe)
    key, value = case.topics[step.topic]
    headers = tuple((name, None if text is None else text.encode()) for name, text in step.headers)
    topic = driver.input(step.topic, key=bytes, value=bytes)
    topic.pipe(to_bytes(value, step.value), key=to_bytes(key, step.key), timestamp=step.at, headers=headers)


def to_bytes(serde: str, value: Any) -> bytes | None:
    """An input's bytes, encoded without Penstock's serdes so that both sides read the same."""
    if value is None:
        return None
    if serde == "long":
        return struct.pack(">q", value)
    if serde == "double":
        return struct.pack(">d", value)
    return bytes.fromhex(value) if serde == "bytes" else str(value).encode()


def _drain(driver: TopologyTestDriver, step: int, outputs: dict[str, list[Any]]) -> None:
    for topic in sorted(driver.produced_topic_names()):
        rows = outputs.setdefault(topic, [])
        for record in driver.output(topic, key=bytes, value=bytes).records():
            headers = [[name, _hex(value)] for name, value in record.headers]
            rows.append([step, _hex(record.key), _hex(record.value), record.timestamp, headers])


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _committed_stores(driver: TopologyTestDriver) -> dict[str, Any]:
    """The stores as committed: below their caches, as in the oracle."""
    state = driver._state
    view = state.read_committed(state.epoch)
    return {name: view.store(spec) for name, spec in driver._topology.stores.items()}


def _content(case: Case, store: Any) -> dict[str, Any]:
    if isinstance(store, VersionedKeyValueStore):
        return {"kind": "versioned", "entries": list(_versions(case, store))}
    if isinstance(store, WindowStore):
        entries = getattr(store, "entries", None)
        return {"kind": "window", "entries": _entries(entries.all() if entries is not None else store.all())}
    if isinstance(store, SessionStore):
        return {"kind": "session", "entries": _entries(store.all())}
    if isinstance(store, TimestampedKeyValueStore):
        return {"kind": "key_value", "entries": _entries(store.entries.all())}
    if hasattr(store, "all"):
        return {"kind": "key_value", "entries": _entries(store.all())}
    return {"kind": "unreadable"}


def _entries(found: Iterable[tuple[Any, Any]]) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for key, value in found:
        if isinstance(value, ValueAndTimestamp):
            rows.append([_key(key), _scalar(value.value), value.timestamp])
        else:
            rows.append([_key(key), _scalar(value)])
    return rows


def _versions(case: Case, store: VersionedKeyValueStore[Any, Any]) -> Iterable[list[Any]]:
    for key in case.probe_keys:
        probes = [(-1, store.get(key)), *((at, store.get(key, at)) for at in case.probe_times)]
        for at, found in probes:
            if found is not None:
                yield [f"s:{key}", at, _scalar(found.value), found.timestamp]


def _key(key: Any) -> str | None:
    return f"{_key(key.key)}@{key.start}/{key.end}" if isinstance(key, Windowed) else _scalar(key)


def _scalar(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return f"s:{value}"
    if isinstance(value, int):
        return f"l:{value}"
    if isinstance(value, float):
        return f"d:{struct.unpack('>Q', struct.pack('>d', value))[0]:x}"
    if isinstance(value, dict):
        return f"s:{show(value)}"
    return f"b:{bytes(value).hex()}"
