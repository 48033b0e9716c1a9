"""The exact list of public names: adding or removing one is a decision, and the reference page has each."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import penstock

PAGE = (Path(__file__).parents[2] / "docs" / "reference.md").read_text(encoding="utf-8")
CODE = " ".join(re.findall(r"```.*?```|`[^`]+`", PAGE, re.DOTALL))

TOP = [
    "App",
    "Avro",
    "CallContext",
    "Cancellable",
    "CircuitBreaker",
    "CogroupedKStream",
    "EmitStrategy",
    "Expression",
    "Failure",
    "FixedKeyProcessor",
    "GlobalKTable",
    "Headers",
    "Int32",
    "JsonSchema",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "MsgPack",
    "PenstockError",
    "Plugin",
    "Processor",
    "ProcessorContext",
    "Protobuf",
    "PunctuationType",
    "Record",
    "RecordContext",
    "RecordMetadata",
    "ResultCache",
    "Serde",
    "SessionWindowed",
    "SharedKeyValueStore",
    "SideOutput",
    "Store",
    "StreamsBuilder",
    "Suppressed",
    "TimeWindowed",
    "Timer",
    "Topology",
    "ValueTransformer",
    "Windowed",
    "WindowedCogroupedKStream",
    "WindowedKStream",
    "Windows",
    "__version__",
    "agg",
    "bounded_disorder",
    "col",
    "dead_letter",
    "hopping",
    "key_value_store",
    "left",
    "log_and_continue",
    "log_and_fail",
    "max_bytes",
    "max_records",
    "monotonous",
    "on_record",
    "otherwise",
    "retry",
    "right",
    "session",
    "session_store",
    "shared_store",
    "sliding",
    "struct",
    "timestamped_key_value_store",
    "timestamped_window_store",
    "tumbling",
    "unbounded",
    "unlimited",
    "until_time_limit",
    "until_window_closes",
    "versioned_store",
    "watermark_from",
    "window_store",
]

ELSEWHERE = {
    "penstock.errors": "CircuitOpenError LateRecordError ProcessingError SerializationError StateError TopologyError",
    "penstock.handlers": "ErrorHandler ErrorHandlers FailureKind",
    "penstock.metrics": "Counter Gauge Histogram Labelled UserMetrics",
    "penstock.processor": "TimerKind Timers",
    "penstock.records": "SourceRecord ValueAndTimestamp VersionedRecord",
    "penstock.serdes": "Boolean Bytes Float32 Float64 Int16 Int64 Json List Reference String UUIDs Void",
    "penstock.state": "StoreSpec",
    "penstock.testing": "FakeAsync InputTopic OutputTopic TopologyTestDriver",
    "penstock.timing": "Duration Watermark",
}
"""Names on the page that are not in `penstock` itself, by module."""


def is_on_the_page(name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", CODE) is not None


def test_penstock_exports_exactly_these_names() -> None:
    assert sorted(penstock.__all__) == sorted(TOP)
    assert all(hasattr(penstock, name) for name in TOP)


@pytest.mark.parametrize("name", TOP)
def test_a_public_name_is_on_the_reference_page(name: str) -> None:
    assert is_on_the_page(name), (
        f"{name} is not documented. Cure: add a line to docs/reference.md, or export it from another module."
    )


@pytest.mark.parametrize("module", ELSEWHERE)
def test_names_of_other_modules_on_the_page_exist(module: str) -> None:
    there = importlib.import_module(module)
    for name in ELSEWHERE[module].split():
        assert hasattr(there, name)
        assert is_on_the_page(name)
        assert name not in penstock.__all__
    assert is_on_the_page(module)
