"""Dead letters as a lane would write them."""

from __future__ import annotations

from penstock import Failure, RecordMetadata
from penstock.handlers import FailureKind
from penstock.letters import Letter, failure_headers
from penstock.records import Headers

SOURCE = RecordMetadata("in", 2, 7)


def letter(
    offset: int = 0,
    *,
    partition: int = 0,
    topic: str = "dead",
    source: RecordMetadata | None = SOURCE,
    read_from: str | None = "in",
    node: str = "map",
    kind: FailureKind = FailureKind.PROCESSING,
    error: Exception | None = None,
    application: str = "app",
    time_ms: int = 1_000,
    headers: Headers = (),
) -> Letter:
    raised = error or ValueError("bad")
    failure = Failure(kind, raised, node, source, b"k", b"v", 5, headers, read_from)
    all_headers = headers + failure_headers(failure, raised, application, 3, time_ms)
    return Letter(RecordMetadata(topic, partition, offset), b"k", b"v", 5, all_headers)
