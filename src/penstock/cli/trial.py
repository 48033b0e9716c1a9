"""`penstock try`: runs a topology over files of records, in the test driver, and prints what it has written and stored."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from penstock.app import App
from penstock.cli.samples.records import Sample, Samples, read_samples, read_topics
from penstock.cli.screen import moment, output_console, print_json, shown, table
from penstock.errors import ConfigError, PenstockError, ProcessingError, TopologyError
from penstock.queries.forms import encoded
from penstock.records import Headers, Record, VersionedRecord, Windowed
from penstock.state import StoreKind
from penstock.testing import TopologyTestDriver
from penstock.timing import duration_ms
from penstock.topology import SinkNode, SourceNode

_OWN_LAYOUT = (StoreKind.RAW, StoreKind.TIMERS)
"""Stores of operators, which keep no keys and values of the user's."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a topology has written, by topic; what its stores have; and how many records were skipped, by node and reason."""

    topics: Mapping[str, list[Record[Any, Any]]]
    stores: Mapping[str, list[tuple[Any, Any]]]
    dropped: Mapping[tuple[str, str], int]


def try_app(app: App, inputs: Iterable[str], advance: str | None) -> Outcome:
    """Run the topology over files. The clock follows the records, and moves on by `advance` after the last one."""
    given = list(inputs)
    if not given and advance is None:
        sources = [node for node in app.topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
        raise ConfigError(f"try: give it records with --input TOPIC=FILE. The topology reads: {read_topics(sources)}.")
    further_ms = 0 if advance is None else duration_ms(advance, "--advance")
    now = int(time.time() * 1000)
    samples = read_samples(given, app.topology, now)
    start = min((sample.time for sample in samples.streams), default=now)
    handlers = app.error_handlers
    with TopologyTestDriver(
        app.topology,
        wall_clock=start,
        deserialization_errors=handlers.deserialization,
        processing_errors=handlers.processing,
        production_errors=handlers.production,
    ) as driver:
        _feed(driver, samples, start)
        driver.advance_wall_clock(further_ms)
        return _outcome(app, driver)


def _feed(driver: TopologyTestDriver, samples: Samples, clock: int) -> None:
    for sample in samples.global_tables:
        _pipe(driver, sample)
    for sample in samples.streams:
        if sample.time > clock:
            driver.advance_wall_clock(sample.time - clock)
            clock = sample.time
        _pipe(driver, sample)


def _pipe(driver: TopologyTestDriver, sample: Sample) -> None:
    topic = driver.input(sample.topic)
    try:
        topic.pipe(sample.value, key=sample.key, timestamp=sample.timestamp, headers=sample.headers)
    except PenstockError as error:
        raise ProcessingError(f"{sample.place}: {error}") from error


def _outcome(app: App, driver: TopologyTestDriver) -> Outcome:
    sinks = [node for node in app.topology.nodes.values() if isinstance(node, SinkNode) and not node.internal]
    names = {node.topic for node in sinks if isinstance(node.topic, str)} | driver.produced_topic_names()
    specs = app.topology.stores
    return Outcome(
        {name: _written(driver, name) for name in sorted(names)},
        {name: list(store.all()) for name, store in driver.stores().items() if specs[name].kind not in _OWN_LAYOUT},
        dict(driver.dropped()),
    )


def _written(driver: TopologyTestDriver, topic: str) -> list[Record[Any, Any]]:
    try:
        return driver.output(topic).records()
    except TopologyError:  # a handler has chosen it for a dead letter
        return driver.output(topic, key=bytes, value=bytes).records()


# ---- printing ---------------------------------------------------------------------------------------------------------


def print_outcome(outcome: Outcome, limit: int, as_json: bool) -> None:
    """Print the outcome as tables of at most `limit` rows, or all of it as JSON."""
    if as_json:
        print_json(_document(outcome))
        return
    console = output_console()
    for name, records in outcome.topics.items():
        has_headers = any(record.headers for record in records)
        columns = ("key", "value", "timestamp", "headers") if has_headers else ("key", "value", "timestamp")
        rows = [
            (_cell(record.key), _cell(record.value), moment(record.timestamp), _headers(record.headers))[: len(columns)]
            for record in records
        ]
        _print_table(console, columns, rows, f"topic {name}", limit)
    for name, entries in outcome.stores.items():
        _print_table(console, ("key", "value"), [tuple(map(_cell, entry)) for entry in entries], f"store {name}", limit)
    if outcome.dropped:
        rows = [(node, why, f"{count:,}") for (node, why), count in outcome.dropped.items()]
        console.print(table(("node", "why", "records"), rows, "skipped"))


def _print_table(console: Console, columns: tuple[str, ...], rows: list[tuple[Any, ...]], title: str, limit: int) -> None:
    if not rows:
        console.print(shown(f"{title}: empty", style="italic"))
        return
    console.print(shown(title, style="italic"))  # the title of a table would be broken where the table ends
    console.print(table(columns, rows[:limit]))
    if len(rows) > limit:
        console.print(shown(f"the first {limit} of {len(rows):,} rows (--limit)", style="dim"))


def _cell(value: Any) -> str:
    """Return a key or value as a table shows it: text as it is, a window behind its key, anything else as JSON."""
    if value is None:
        return "null"
    if isinstance(value, Windowed):
        return f"{_cell(value.key)}, {moment(value.start)} – {moment(value.end)}"
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _headers(headers: Headers) -> str:
    return json.dumps({name: _plain(value) for name, value in headers}, ensure_ascii=False) if headers else ""


def _plain(value: Any) -> Any:
    """Return a value as plain JSON types."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, Windowed):
        return {"key": _plain(value.key), "start": value.start, "end": value.end}
    if isinstance(value, VersionedRecord):
        return _plain(value.value)
    return json.loads(encoded(value))


def _document(outcome: Outcome) -> dict[str, Any]:
    return {
        "topics": {name: [*map(_record, records)] for name, records in outcome.topics.items()},
        "stores": {
            name: [{"key": _plain(key), "value": _plain(value)} for key, value in entries]
            for name, entries in outcome.stores.items()
        },
        "dropped": [{"node": node, "why": why, "records": count} for (node, why), count in outcome.dropped.items()],
    }


def _record(record: Record[Any, Any]) -> dict[str, Any]:
    headers = [[name, _plain(value)] for name, value in record.headers]
    about = {"timestamp": record.timestamp, "headers": headers}
    return {"key": _plain(record.key), "value": _plain(record.value), **about}
