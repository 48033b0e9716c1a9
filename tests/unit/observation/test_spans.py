"""Spans of epochs, and traces of records through a real epoch of real lanes: sent rows continue one trace and link the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from penstock import StreamsBuilder, Topology, dead_letter, tumbling
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch
from penstock.epochs.wire import LaneReport
from penstock.handlers import ErrorHandlers
from penstock.lanes.traces import LINKS, MOST, TRACEPARENT, contexts_of, with_links
from penstock.observation import EpochReport
from penstock.observation import spans as spans_module
from penstock.observation.spans import Tracing
from tests.unit.epochs.application import Application, program_of

LANES = 2
REPORT = EpochReport(
    7, 1_000_000, 0.5, 12, {"before": 0.1, "job": 0.3, "commit": 0.1}, lanes=(LaneReport(0, 0, 6, 0.1), LaneReport(1, 0, 6, 0.1))
)


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK that keeps all exported spans."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def context(number: int, flags: str = "01") -> bytes:
    return f"00-{number:032x}-{number:016x}-{flags}".encode()


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


class TestEpochs:
    def test_an_epoch_is_a_span_and_its_phases_are_its_children_in_order(self, exported: InMemorySpanExporter) -> None:
        Tracing({"application": "words"}, ()).on_epoch(REPORT)
        *phases, epoch = exported.get_finished_spans()
        assert (epoch.name, epoch.start_time, epoch.end_time) == ("epoch", 1_000_000_000_000, 1_000_500_000_000)
        assert epoch.attributes == {
            "penstock.application": "words",
            "penstock.epoch": 7,
            "penstock.records": 12,
            "penstock.lanes": 2,
        }
        assert [phase.name for phase in phases] == ["epoch before", "epoch job", "epoch commit"]
        assert [phase.parent for phase in phases] == [epoch.context] * 3
        assert [phase.start_time for phase in phases] == [1_000_000_000_000, 1_000_100_000_000, 1_000_400_000_000]
        assert phases[-1].end_time == epoch.end_time

    def test_without_an_sdk_nothing_happens(self) -> None:
        Tracing({"application": "words"}, ()).on_epoch(REPORT)


class Traced:
    """One epoch of a topology, and its rows after tracing."""

    def __init__(self, directory: Path, make: Callable[[], Topology], handlers: ErrorHandlers | None = None) -> None:
        app = Application(directory, make, handlers=handlers)
        app.start(LANES)
        self.program = replace(app.running, is_traced=True, specs=program_of(app.topology).specs)
        self.tracing = Tracing({"application": "app"}, self.program.topics)

    def run(self, records: Sequence[tuple[str, str, str, tuple[bytes, ...]]]) -> list[tuple[bytes, list[tuple[str, bytes]]]]:
        """Run records (source topic, key, value, contexts); return the sent rows as key and headers."""
        topics = sorted({record[0] for record in records})
        nodes = (self.program.nodes[name] for name in self.program.sources)
        sources = {topic: code for code, node in enumerate(nodes) for topic in getattr(node, "topics", ())}
        rows = [
            {
                "name": sources[topic],
                "origin": topics.index(topic),
                "offset": number,
                "timestamp": number,
                "key": key.encode(),
                "value": value.encode(),
                "headers": [{"name": TRACEPARENT, "value": value} for value in contexts] or None,
            }
            for number, (topic, key, value, contexts) in enumerate(records)
        ]
        origins = tuple((topic, 0) for topic in topics)
        epoch = Epoch(0, -1, 5_000, origins, (-1,) * len(origins))
        table = run_epoch(self.program, epoch, [pa.RecordBatch.from_pylist(rows, schema=INPUT)])
        sent = [row for batch in table.to_batches() for row in self._sent(batch)]
        self.tracing.on_epoch(REPORT)
        return sent

    def _sent(self, batch: pa.RecordBatch) -> Iterator[tuple[bytes, list[tuple[str, bytes]]]]:
        is_sent = pa.array([row["kind"] in (1, 3) for row in batch.to_pylist()], pa.bool_())
        for row in self.tracing.continued(batch.filter(is_sent)).to_pylist():
            yield row["key"], [(pair["name"], pair["value"]) for pair in row["headers"] or ()]


def plain() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).map_values(str.upper).to("out", value=str)
    return builder.build()


def counts() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().count(store="counts").to_stream().to("out", value=int)
    return builder.build()


def words() -> Topology:
    builder = StreamsBuilder()
    flat = builder.stream("in", value=str).flat_map_values(str.split)
    flat.group_by(lambda key, value: value).count(store="words").to_stream().to("out", value=int)
    return builder.build()


def windows() -> Topology:
    builder = StreamsBuilder()
    counted = builder.stream("in", value=str).group_by_key().windowed_by(tumbling(2)).count(store="windows")
    counted.to_stream(lambda key, value: f"{key.key}@{key.start}", key=str).to("out", value=int)
    return builder.build()


def joined(kind: str) -> Callable[[], Topology]:
    def make() -> Topology:
        builder = StreamsBuilder()
        left = builder.stream("left", value=str)
        if kind == "stream":
            left.join(builder.stream("right", value=str), lambda a, b: a + b, within="1s").to("out", value=str)
        elif kind == "table":
            left.join(builder.table("right", value=str, store="right"), lambda a, b: a + b).to("out", value=str)
        else:
            table = builder.table("others", value=str, store="others")
            table.join(builder.table("right", value=str, store="right"), lambda a, b: a + b).to_stream().to("out", value=str)
        return builder.build()

    return make


def spans(exported: InMemorySpanExporter) -> list[ReadableSpan]:
    return [span for span in exported.get_finished_spans() if span.name.startswith("send ")]


def links(span: ReadableSpan) -> list[int]:
    """Return the traces a span is linked with, without the epoch's, which is the last."""
    return [link.context.trace_id for link in span.links[:-1]]


class TestRecords:
    def test_a_sent_row_continues_the_trace_of_its_record(self, exported: InMemorySpanExporter, tmp_path: Path) -> None:
        sent = Traced(tmp_path, plain).run([("in", "a", "x", (context(1),)), ("in", "b", "y", ())])
        [span] = spans(exported)
        assert span.context is not None
        assert dict(sent) == {b"a": [(TRACEPARENT, f"00-{1:032x}-{span.context.span_id:016x}-01".encode())], b"b": []}
        assert (span.name, span.kind, trace_of(span)) == ("send out", SpanKind.PRODUCER, 1)
        assert span.parent is not None
        assert span.parent.span_id == 1
        assert span.context.span_id != 1

    def test_it_is_linked_with_its_epoch(self, exported: InMemorySpanExporter, tmp_path: Path) -> None:
        Traced(tmp_path, plain).run([("in", "a", "x", (context(1),))])
        [span] = spans(exported)
        epoch = next(span for span in exported.get_finished_spans() if span.name == "epoch")
        assert [link.context for link in span.links] == [epoch.context]

    @pytest.mark.parametrize("header", [context(1, "00"), b"junk", b"", context(0), b"ff" + context(1)[2:]])
    def test_a_record_without_a_valid_context_is_not_changed(
        self, exported: InMemorySpanExporter, tmp_path: Path, header: bytes
    ) -> None:
        sent = Traced(tmp_path, plain).run([("in", "a", "x", (header,))])
        assert sent == [(b"a", [(TRACEPARENT, header)])]
        assert spans(exported) == []

    def test_an_aggregate_is_linked_with_all_records_of_the_epoch_that_led_to_it(
        self, exported: InMemorySpanExporter, tmp_path: Path
    ) -> None:
        records = [("in", "a", "x", (context(1),)), ("in", "a", "y", (context(2),)), ("in", "b", "z", (context(3),))]
        sent = Traced(tmp_path, counts).run([*records, ("in", "a", "untraced", ())])
        found = {trace_of(span): links(span) for span in spans(exported)}
        assert found == {2: [1], 3: []}
        assert all(name != LINKS for _, headers in sent for name, _ in headers)

    def test_traces_go_through_an_exchange(self, exported: InMemorySpanExporter, tmp_path: Path) -> None:
        Traced(tmp_path, words).run([("in", "1", "apple pear", (context(1),)), ("in", "2", "apple", (context(2),))])
        assert sorted((trace_of(span), links(span)) for span in spans(exported)) == [(1, []), (2, [1])]

    def test_a_window_is_linked_with_its_own_records_only(self, exported: InMemorySpanExporter, tmp_path: Path) -> None:
        Traced(tmp_path, windows).run([("in", "a", "x", (context(number),)) for number in (1, 2, 3, 4)])  # two per window
        assert sorted((trace_of(span), links(span)) for span in spans(exported)) == [(2, [1]), (4, [3])]

    @pytest.mark.parametrize(
        ("kind", "records"),
        [
            ("stream", ["left", "right"]),
            ("stream", ["right", "left"]),
            ("table", ["right", "left"]),
            ("tables", ["right", "others"]),
            ("tables", ["others", "right"]),
        ],
    )
    def test_a_join_is_linked_with_the_other_side(
        self, exported: InMemorySpanExporter, tmp_path: Path, kind: str, records: list[str]
    ) -> None:
        first, second = records
        traced = Traced(tmp_path, joined(kind))
        traced.run([(first, "a", "x", (context(1),)), (second, "a", "y", (context(2),)), (first, "b", "z", (context(3),))])
        assert [(trace_of(span), links(span)) for span in spans(exported)] == [(2, [1])]

    def test_a_dead_letter_continues_the_trace_too(self, exported: InMemorySpanExporter, tmp_path: Path) -> None:
        def failing() -> Topology:
            builder = StreamsBuilder()
            builder.stream("in", value=str).map_values(lambda value: 1 / 0).to("out", value=float)
            return builder.build()

        handlers = ErrorHandlers(processing=dead_letter("dead"))
        [(_, headers)] = Traced(tmp_path, failing, handlers).run([("in", "a", "x", (context(1),))])
        [span] = spans(exported)
        assert (span.name, trace_of(span)) == ("send dead", 1)
        assert span.context is not None
        assert dict(headers)[TRACEPARENT] == f"00-{1:032x}-{span.context.span_id:016x}-01".encode()

    def test_beyond_the_limit_of_spans_contexts_are_passed_on(
        self, exported: InMemorySpanExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spans_module, "MOST_SPANS", 1)
        sent = Traced(tmp_path, plain).run([("in", "a", "x", (context(1),)), ("in", "b", "x", (context(2),))])
        assert len(spans(exported)) == 1
        assert len([headers for _, headers in sent if headers[0][1] in (context(1), context(2))]) == 1

    def test_without_an_sdk_contexts_are_passed_on(self, tmp_path: Path) -> None:
        sent = Traced(tmp_path, counts).run([("in", "a", "x", (context(1),)), ("in", "a", "y", ())])
        assert sent == [(b"a", [(TRACEPARENT, context(1))])]

    def test_rows_without_traces_are_not_copied(self) -> None:
        row: dict[str, Any] = {"name": 0, "topic": None, "headers": None}
        schema = pa.schema([("name", pa.int16()), ("topic", pa.string()), INPUT.field("headers")])
        for headers in (None, [{"name": "other", "value": b"x"}]):
            batch = pa.RecordBatch.from_pylist([{**row, "headers": headers}], schema=schema)
            assert Tracing({}, ("out",)).continued(batch) is batch


class TestContexts:
    def test_a_records_own_context_is_the_last(self) -> None:
        headers = ((LINKS, b",".join([context(1), context(2)])), ("other", None), (TRACEPARENT, context(1)))
        assert contexts_of(headers) == [context(2), context(1)]

    def test_only_the_last_ones_are_kept(self) -> None:
        contexts = [context(number) for number in range(1, MOST + 4)]
        headers = with_links((), contexts)
        assert contexts_of(headers) == contexts[-MOST:]

    def test_headers_that_are_already_complete_are_not_changed(self) -> None:
        headers = ((TRACEPARENT, context(1)),)
        assert with_links(headers, [context(1)]) is headers
