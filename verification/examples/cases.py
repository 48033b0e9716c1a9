"""The examples as cases: the application, its data, how its outputs are compared, and what else it needs while it runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import psycopg

from examples.cdc_views import app as cdc_views
from examples.customer_360 import app as customer_360
from examples.exactly_once_postgres import app as exactly_once_postgres
from examples.fraud_detection import app as fraud_detection
from examples.from_kafka_streams import page_views, word_count
from examples.iot_alerts import app as iot_alerts
from examples.llm_enrichment import app as llm_enrichment
from examples.llm_enrichment.fake_service import FakeService, labels
from examples.order_fulfilment import app as order_fulfilment
from examples.samples import Sample, samples
from examples.session_analytics import app as session_analytics
from penstock import App
from penstock.topology import SinkNode, SourceNode
from verification.harness.postgres import Postgres
from verification.harness.processes import ROOT

EXAMPLES = ROOT / "examples"


class Written(NamedTuple):
    """A record of an output topic."""

    key: bytes | None
    value: bytes | None
    timestamp: int


Outputs = Mapping[str, Sequence[Written]]
"""The records of output topics, by topic, in order."""


@dataclass(frozen=True)
class Surroundings:
    """What an application needs while it runs, and a check of what it did there, given what it should have written."""

    environment: Mapping[str, str] = field(default_factory=dict)
    check: Callable[[Outputs], Sequence[str]] = lambda expected: ()


@contextmanager
def _nothing() -> Iterator[Surroundings]:
    yield Surroundings()


@dataclass(frozen=True)
class Case:
    """An application of an example.

    Of the outputs in `tables` only the last value of each key counts: caches decide how many changes are written, and when. Those
    in `by_clock` depend on when it runs, and are not compared. Those in `empty` have no record for the sample data.
    """

    folder: str
    app: App
    module: str = "app"
    tables: frozenset[str] = frozenset()
    by_clock: frozenset[str] = frozenset()
    empty: frozenset[str] = frozenset()
    fakes: Mapping[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict)
    surroundings: Callable[[], AbstractContextManager[Surroundings]] = _nothing

    @property
    def name(self) -> str:
        """The name of the example; with that of the module if it has several applications."""
        return self.folder if self.module == "app" else f"{self.folder}-{self.module}"

    @property
    def directory(self) -> Path:
        """Where the example is."""
        return EXAMPLES / self.folder

    def records(self) -> list[Sample]:
        """The sample data."""
        return samples(self.directory / "data" / ("" if self.module == "app" else self.module))

    def inputs(self) -> set[str]:
        """The topics that it reads."""
        nodes = self.app.topology.nodes.values()
        return {topic for node in nodes if isinstance(node, SourceNode) and not node.internal for topic in node.topics}

    def outputs(self) -> set[str]:
        """The topics that it writes."""
        sinks = [node for node in self.app.topology.nodes.values() if isinstance(node, SinkNode) and not node.internal]
        letters = self.app.topology.dead_letter_topics() | self.app.error_handlers.dead_letter_topics()
        return {node.topic for node in sinks if isinstance(node.topic, str)} | letters

    def compared(self) -> list[str]:
        """The topics that are compared."""
        return sorted(self.outputs() - self.by_clock)


@contextmanager
def _model() -> Iterator[Surroundings]:
    """The fake service. It must not have refused a call, and each text must have been sent once."""
    with FakeService() as service:

        def check(_: Outputs) -> list[str]:
            texts = {json.loads(sample.value or b"")["text"] for sample in LLM_ENRICHMENT.records()}
            found = [f"the service refused {service.refused} calls that came too fast"] if service.refused else []
            if sorted(service.texts) != sorted(texts):
                found.append(f"the service got {len(service.texts)} texts instead of {len(texts)}, each once")
            return found

        yield Surroundings({"MODEL_URL": service.url}, check)


async def _answer(text: str) -> llm_enrichment.Labels:
    """What the service would answer."""
    return msgspec.convert(labels(text), llm_enrichment.Labels)


@contextmanager
def _bank() -> Iterator[Surroundings]:
    """PostgreSQL. The tables must have a row for each account that is open, and one for each booking."""
    schema = (EXAMPLES / "exactly_once_postgres" / "schema.sql").read_bytes()
    with Postgres() as server, psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(schema)

        def check(expected: Outputs) -> list[str]:
            balances = last_values(expected["balances"])
            rows = {
                "balances": [_columns(key, value, "cents", "bookings") for key, value in balances.items()],
                "bookings": [_columns(key, value, "cents", "text") for key, value, _ in expected["bookings-delivered"]],
            }
            found = {
                "balances": connection.execute("SELECT account, cents, bookings FROM balances").fetchall(),
                "bookings": connection.execute("SELECT account, cents, text FROM bookings").fetchall(),
            }
            return [
                f"table {table} has {sorted(found[table])}, expected {sorted(rows[table])}"
                for table in rows
                if sorted(found[table]) != sorted(rows[table])
            ]

        yield Surroundings({"BANK_DATABASE": server.dsn}, check)


def last_values(records: Sequence[Written]) -> dict[bytes | None, bytes]:
    """The last value of each key; a null value leaves no entry."""
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}


def _columns(key: bytes | None, value: bytes | None, *fields: str) -> tuple[Any, ...]:
    found = json.loads(value or b"{}")
    return ((key or b"").decode(), *(found[name] for name in fields))


LLM_ENRICHMENT = Case(
    "llm_enrichment",
    llm_enrichment.app,
    empty=frozenset({"tickets-failed"}),
    fakes={llm_enrichment.open_model: lambda: _answer},
    surroundings=_model,
)
CASES = (
    Case("fraud_detection", fraud_detection.app),
    Case("order_fulfilment", order_fulfilment.app),
    Case("customer_360", customer_360.app, tables=frozenset({"open-tickets", "customer-profiles"})),
    Case("session_analytics", session_analytics.app, tables=frozenset({"late-by-platform"})),
    Case("iot_alerts", iot_alerts.app, by_clock=frozenset({"sensor-reports"})),
    LLM_ENRICHMENT,
    Case("cdc_views", cdc_views.app, tables=frozenset({"orders-by-status", "revenue-by-country"})),
    Case("exactly_once_postgres", exactly_once_postgres.app, tables=frozenset({"balances"}), surroundings=_bank),
    Case("from_kafka_streams", word_count.app, "word_count", tables=frozenset({"streams-wordcount-output"})),
    Case("from_kafka_streams", page_views.app, "page_views", tables=frozenset({"PageViewsByRegion"})),
)
QUICK = ("fraud_detection", "from_kafka_streams-page_views")
"""The cases of a quick run: one with timers and a watermark, one with a join, an exchange and windows."""
