"""Runs a builder's topology over a few records; what the DSL's tests share."""

from __future__ import annotations

from typing import Any

from penstock import Record, StreamsBuilder
from penstock.testing import TopologyTestDriver

HEADERS = (("trace", b"1"), ("trace", None))


def outputs(builder: StreamsBuilder, *records: tuple[Any, ...], out: str = "out", caching: bool = True) -> list[Record[Any, Any]]:
    """What comes out of a topic after `(topic, key, value)` or `(topic, key, value, timestamp)` went in."""
    with TopologyTestDriver(builder.build(), wall_clock=0, caching=caching) as driver:
        for topic, key, value, *when in records:
            driver.input(topic).pipe(value, key=key, timestamp=when[0] if when else 0, headers=HEADERS)
        return driver.output(out).records()


def run(builder: StreamsBuilder, *records: tuple[Any, ...], out: str = "out", caching: bool = True) -> list[tuple[Any, Any]]:
    """As `outputs`, keys and values only."""
    return [(record.key, record.value) for record in outputs(builder, *records, out=out, caching=caching)]
