"""Telemetry of a real application: log lines in one format from the driver, Spark's workers and its JVM, and traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = pytest.mark.jvm

APP = """
import logging
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from penstock import App, StreamsBuilder, log_and_continue

def shout(value):
    if value == "bad":
        raise ValueError("too quiet, sasl.password=hunter2-c4n4ry")
    if value == "odd":
        print("printed by a function")
        logging.getLogger("own").info("of the user's own \\x1b[2K%s", "in\\u202ejection", extra={"customer": 7})
    return value.upper()

builder = StreamsBuilder()
stream = builder.stream("logs-in", value=str).group_by_key().reduce(lambda old, new: new, store="last").to_stream()
stream.map_values(shout).to("logs-out", value=str)
app = App("logs", builder.build(), processing_errors=log_and_continue())
if __name__ == "__main__":
    provider = TracerProvider()
    exporter = ConsoleSpanExporter(out=open("spans.json", "w"), formatter=lambda span: span.to_json(indent=None) + "\\n")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    app.run(until="latest")
"""

CONTEXTS = [f"00-{number:032x}-{number:016x}-01".encode() for number in (1, 2)]


@dataclass(frozen=True)
class Told:
    lines: list[str]
    spans: list[dict[str, Any]]


@pytest.fixture(scope="module")
def told(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Told:
    for name in ("logs-in", "logs-out"):
        topics.create(broker.bootstrap_servers, name)
    records = [topics.Sent(key=value, value=value) for value in (b"good", b"bad", b"odd")]
    records += [topics.Sent(key=b"good", value=b"better", headers=[("traceparent", context)]) for context in CONTEXTS]
    topics.produce(broker.bootstrap_servers, "logs-in", records)
    path = tmp_path_factory.mktemp("logs") / "app.py"
    path.write_text(APP, encoding="utf-8")
    environment = {
        **os.environ,
        "PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "PENSTOCK_LANES": "2",
        "PENSTOCK_SHARDS": "8",
        "PENSTOCK_TRACING": "true",
    }
    done = subprocess.run(
        [sys.executable, str(path)], env=environment, cwd=path.parent, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    spans = [json.loads(line) for line in path.with_name("spans.json").read_text().splitlines()]
    return Told(done.stderr.splitlines(), spans)


@pytest.fixture(scope="module")
def lines(told: Told) -> list[str]:
    return told.lines


def only(lines: list[str], logger: str) -> dict[str, Any]:
    """The one line of a logger."""
    found: list[dict[str, Any]] = [line for line in map(json.loads, lines) if line["logger"] == logger]
    assert len(found) == 1, "\n".join(lines)
    return found[0]


def test_every_line_is_json_with_the_same_first_fields(lines: list[str]) -> None:
    for line in lines:
        found = json.loads(line)
        assert list(found)[:5] == ["timestamp", "level", "logger", "event", "application"], line
        assert found["application"] == "logs"


def test_workers_lines_come_once_with_lane_and_epoch(lines: list[str]) -> None:
    own, failed = only(lines, "own"), only(lines, "penstock.lanes.failures")
    assert own["event"] == "of the user's own \\x1b[2Kin\\u202ejection"
    assert own["customer"] == 7
    assert "too quiet" in failed["event"]
    for found in (own, failed):
        assert (found["lane"] in (0, 1), found["epoch"]) == (True, 0)
        assert found["incarnation"]
        assert found["topology"]


def test_lines_of_the_epoch_thread_have_the_epoch_and_its_phase(lines: list[str]) -> None:
    dropped = only(lines, "penstock.runtime.loop.epochs")
    assert "dropped 1 records" in dropped["event"]
    assert (dropped["epoch"], dropped["phase"]) == (0, "check")


def test_lines_of_the_jvm_and_printed_lines_are_included(lines: list[str]) -> None:
    found = [json.loads(line) for line in lines]
    assert any(line["logger"].startswith("org.apache.") for line in found)
    assert any((line["logger"], line["event"]) == ("penstock.output", "printed by a function") for line in found)


def test_no_line_contains_a_secret(lines: list[str]) -> None:
    assert "c4n4ry" not in "".join(lines)
    assert any("sasl.password=[hidden]" in line for line in lines)


def test_sent_records_continue_the_trace_of_their_cause(broker: Broker, told: Told) -> None:
    [span] = [span for span in told.spans if span["name"] == "send logs-out"]
    epoch = next(span for span in told.spans if span["name"] == "epoch")
    assert span["context"]["trace_id"] == f"0x{2:032x}"
    assert span["parent_id"] == f"0x{2:016x}"
    assert [link["context"]["trace_id"] for link in span["links"]] == [f"0x{1:032x}", epoch["context"]["trace_id"]]
    headers = {record.key: dict(record.headers) for record in topics.read(broker.bootstrap_servers, "logs-out")}
    span_id = span["context"]["span_id"].removeprefix("0x")
    assert headers == {b"good": {"traceparent": f"00-{2:032x}-{span_id}-01".encode()}, b"odd": {}}


def test_an_epoch_is_a_span_with_its_phases(told: Told) -> None:
    epoch = next(span for span in told.spans if span["name"] == "epoch")
    phases = [span["name"] for span in told.spans if span["parent_id"] == epoch["context"]["span_id"]]
    assert {"epoch before", "epoch job", "epoch check"} < set(phases)
    assert epoch["attributes"]["penstock.application"] == "logs"
