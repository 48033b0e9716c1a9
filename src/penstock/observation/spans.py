"""Spans of epochs and their phases, and of rows that follow from traced records; uses only OpenTelemetry's API.

The application sets up an SDK to export them. Without one there are no spans, and the contexts of records are passed on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags

from penstock.lanes.traces import LINKS, TRACEPARENT, contexts_of
from penstock.observation import EpochReport

MOST_SPANS = 1_000
"""The most spans per epoch for sent rows; beyond that, contexts are passed on unchanged."""

_MS = 1_000_000
_S = 1_000_000_000


class Tracing:
    """The spans of one start. `labels` are attributes of all spans of epochs and rows; rows refer to `topics` by index."""

    def __init__(self, labels: Mapping[str, str], topics: Sequence[str]) -> None:
        self._tracer = trace.get_tracer("penstock")
        self._labels = {f"penstock.{name}": value for name, value in labels.items()}
        self._topics = topics
        self._sent: list[Span] = []

    def on_epoch(self, report: EpochReport) -> None:
        """Make the spans of a committed epoch from its report, and end the spans of its sent rows."""
        began = report.began_ms * _MS
        attributes: dict[str, str | int] = {
            **self._labels,
            "penstock.epoch": report.number,
            "penstock.records": report.records,
            "penstock.lanes": len({lane.lane for lane in report.lanes}),
        }
        epoch = self._tracer.start_span("epoch", attributes=attributes, start_time=began)
        for span in self._sent:
            span.add_link(epoch.get_span_context())
            span.end()
        self._sent = []
        if not epoch.is_recording():
            return
        context = trace.set_span_in_context(epoch)
        for phase, seconds in report.phases.items():
            ended = began + int(seconds * _S)
            self._tracer.start_span(f"epoch {phase}", context, start_time=began).end(ended)
            began = ended
        epoch.end(max(began, report.began_ms * _MS + int(report.seconds * _S)))

    def continued(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of an epoch; those that follow from traced records get the contexts of our spans."""
        headers = rows.column("headers")
        if headers.null_count == len(headers):
            return rows
        found = headers.to_pylist()
        changed = {
            row: self._continued(pairs, contexts, self._topic(rows, row))
            for row, pairs in enumerate(found)
            if pairs and (contexts := contexts_of(tuple((pair["name"], pair["value"]) for pair in pairs)))
        }
        if not changed:
            return rows
        array = pa.array([changed.get(row, pairs) for row, pairs in enumerate(found)], headers.type)
        return rows.set_column(rows.schema.get_field_index("headers"), rows.schema.field("headers"), array)

    def _topic(self, rows: pa.RecordBatch, row: int) -> str:
        code: int = rows.column("name")[row].as_py()
        return self._topics[code] if code >= 0 else str(rows.column("topic")[row].as_py())

    def _continued(self, pairs: list[dict[str, Any]], contexts: list[bytes], topic: str) -> list[dict[str, Any]]:
        """Return a row's headers with the context of a new span: a child of the last of `contexts`, linked with the others."""
        *others, last = map(_context, contexts)
        sent = self._span(topic, last, others) if len(self._sent) < MOST_SPANS else last
        stamp = {"name": TRACEPARENT, "value": _traceparent(sent)}
        place = next((place for place, pair in enumerate(pairs) if pair["name"] == TRACEPARENT), len(pairs))
        return [
            *(pair for pair in pairs[:place] if pair["name"] != LINKS),
            stamp,
            *(pair for pair in pairs[place:] if pair["name"] not in (TRACEPARENT, LINKS)),
        ]

    def _span(self, topic: str, parent: SpanContext, others: Sequence[SpanContext]) -> SpanContext:
        """Return the context of a new span, which ends when the epoch is committed. Without a commit it is never exported."""
        span = self._tracer.start_span(
            f"send {topic}",
            trace.set_span_in_context(NonRecordingSpan(parent)),
            kind=SpanKind.PRODUCER,
            attributes={**self._labels, "messaging.system": "kafka", "messaging.destination.name": topic},
            links=[Link(context) for context in others],
        )
        if span.is_recording():
            self._sent.append(span)
        return span.get_span_context()


def _context(header: bytes) -> SpanContext:
    _, trace_id, span_id, flags, *_ = header.split(b"-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _traceparent(context: SpanContext) -> bytes:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}".encode()
