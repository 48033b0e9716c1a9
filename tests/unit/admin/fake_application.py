"""A fake application for the dashboard: fed with epochs, and served without Spark or Kafka."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock import StreamsBuilder, Topology, bounded_disorder, dead_letter, tumbling
from penstock.admin.dashboard import PUBLIC, routes
from penstock.epochs.wire import LaneReport
from penstock.handlers import ErrorHandlers
from penstock.observation import CommittedStores, EpochReport, Health, PartitionReport, Recorder, Worker
from penstock.observation.recorder import _added
from penstock.runtime.states import State
from penstock.topology import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from penstock.runtime.application import RunningApplication

POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
"""Like the admin server's policy."""


def shop() -> Topology:
    """Orders by customer, then by region: three stages, with tables, a window, and late orders as dead letters."""
    builder = StreamsBuilder()
    in_time = bounded_disorder("5s", idle="30s")
    orders = builder.stream("orders", value=dict, name="orders-in", watermark=in_time, late=dead_letter("orders-late"))
    customers = builder.table("customers", value=dict, store="customers")
    paid = orders.filter(lambda _, order: order["amount"] > 0, name="paid-only")
    known = paid.select_key(lambda _, order: order["customer"], name="by-customer").join(
        customers, lambda order, customer: {**order, **customer}, value=dict
    )
    known.to("orders-enriched")
    region = known.group_by(lambda _, order: order["region"], name="by-region").windowed_by(tumbling("1m", grace="10s"))
    region.count(store="orders-per-region").to_stream(lambda windowed, _: windowed.key).to("orders-per-region-minute", value=int)
    return builder.build()


class FedRecorder(Recorder):
    """A recorder that accepts reports of past epochs."""

    def feed(self, report: EpochReport) -> None:
        self._recent.append(report)
        self.totals = _added(self.totals, report)
        self.committed_at = time.monotonic()


@dataclass
class FakeApplication:
    """What the dashboard needs of a `RunningApplication`."""

    topology: Topology = field(default_factory=shop)
    application_id: str = "shop-orders"
    recorder: FedRecorder = field(default_factory=FedRecorder)
    state: State = State.RUNNING
    epoch: int = 41_200
    handlers: ErrorHandlers = field(default_factory=lambda: ErrorHandlers(processing=dead_letter("orders-dead")))

    def __post_init__(self) -> None:
        self.health = Health(self.recorder, lambda: self.state.value, epoch_timeout_s=60)

    @property
    def running(self) -> RunningApplication:
        return cast("RunningApplication", self)


class Feeder:
    """Feeds epochs like those of an application under load; the same seed feeds the same epochs."""

    lanes = 4

    def __init__(self, application: FakeApplication, seed: int = 1) -> None:
        self._application = application
        self._random = random.Random(seed)
        self._offsets = {(topic, partition): 1_000_000 + 77_000 * partition for topic in self._topics() for partition in range(4)}
        self._entries: dict[str, int] = dict.fromkeys(application.topology.stores, 180_000)
        self._lag = 9_000.0

    def _topics(self) -> list[str]:
        sources = [
            node for node in self._application.topology.nodes.values() if isinstance(node, SourceNode) and not node.internal
        ]
        return [topic for node in sources for topic in node.topics]

    def history(self, seconds: int) -> None:
        """Feed epochs of about a second each, up to now."""
        now = int(time.time() * 1000)
        for second in range(seconds, 0, -1):
            self.epoch(now - second * 1000, is_sampled=second % 5 == 0)

    def epoch(self, began_ms: int, *, is_sampled: bool) -> None:
        """Feed one epoch."""
        application, chance = self._application, self._random
        application.epoch += 1
        slow = 1.0 if chance.random() > 0.04 else 2.2
        records = int(chance.gauss(21_000, 1_800) / slow)
        job, commit = chance.uniform(0.5, 0.62) * slow, chance.uniform(0.05, 0.09) * slow
        phases = {
            "before": 0.004,
            "job": job,
            "check": 0.021,
            "produce": commit,
            "offsets": 0.006,
            "commit": commit * 0.7,
            "after": 0.001,
        }
        report = EpochReport(
            application.epoch, began_ms, sum(phases.values()), records, phases, self._sent(records), self._dropped(),
            tuple(self._lane(lane, stage, records, job, is_sampled) for lane in range(self.lanes) for stage in range(3)),
            is_sampled,
        )  # fmt: skip
        application.recorder.feed(report)
        self._move(began_ms + int(report.seconds * 1000), records)
        if is_sampled:
            self._sizes()

    def _sent(self, records: int) -> dict[str, int]:
        sinks = [node for node in self._application.topology.nodes.values() if isinstance(node, SinkNode) and not node.internal]
        sent = {str(node.topic): records // (1 + 40 * number) for number, node in enumerate(sinks)}
        return {
            **sent,
            **{
                f"{self._application.application_id}-{store}-changelog": records // 3
                for store in self._application.topology.stores
            },
        }

    def _dropped(self) -> tuple[tuple[str, str, int], ...]:
        nodes = [node.name for node in self._application.topology.nodes.values() if isinstance(node, ProcessorNode)]
        if not nodes or self._random.random() > 0.2:
            return ()
        return ((nodes[0], "dead letter", 1), (nodes[-1], "expired window", self._random.randrange(1, 6)))

    def _lane(self, lane: int, stage: int, records: int, job: float, is_sampled: bool) -> LaneReport:
        skew = (1.25, 0.95, 0.9, 0.9)[lane % 4] * self._random.uniform(0.96, 1.04)
        busy = job * (0.25, 0.2, 0.35)[stage] * skew
        share = int(records * skew / self.lanes)
        if not is_sampled:
            return LaneReport(lane, stage, share, busy)
        names = [
            name for number, group in enumerate(self._application.topology.groups()) if number % 3 == stage for name in group
        ]
        weights = {name: 1 + sum(map(ord, name)) % 7 + 6 * ("AGG" in name or "JOIN" in name) for name in names}
        passed = {name: int(share * 0.985 ** list(self._application.topology.nodes).index(name)) for name in names}
        nodes = {name: (passed[name], busy * weight / sum(weights.values())) for name, weight in weights.items()}
        return LaneReport(lane, stage, share, busy, 4000 + lane, 212_000_000 + 9_000_000 * lane, nodes)

    def _move(self, now_ms: int, records: int) -> None:
        self._lag = max(0.0, self._lag + self._random.gauss(0, 1_200) - (self._lag - 6_000) * 0.05)
        reports = {}
        for (topic, partition), offset in self._offsets.items():
            self._offsets[topic, partition] = offset + records // len(self._offsets)
            lag = int(self._lag * (0.55 if partition == 2 else 0.15))
            behind = 900 + 350 * partition
            watermark = now_ms - behind - 5_000 if topic == self._topics()[0] else -1
            place = self._offsets[topic, partition]
            reports[topic, partition] = PartitionReport(topic, partition, place, place + lag, now_ms - behind, watermark)
        known = [report.watermark for report in reports.values() if report.watermark >= 0]
        self._application.recorder.saw_ends({place: report.end for place, report in reports.items()})
        self._application.recorder.moved(reports, min(known, default=-1))

    def _sizes(self) -> None:
        for store in self._entries:
            self._entries[store] += self._random.randrange(0, 400)
        sizes = {store: entries * 143 for store, entries in self._entries.items()}
        self._application.recorder.stores = CommittedStores(dict(self._entries), sizes)
        self._application.recorder.memory = {
            Worker("", 4000 + lane): 212_000_000 + 9_000_000 * lane for lane in range(self.lanes)
        }

    @contextmanager
    def live(self) -> Iterator[None]:
        """Feed an epoch each second until the block ends."""
        ended = threading.Event()

        def feed() -> None:
            while not ended.wait(1.0):
                number = self._application.epoch
                self.epoch(int(time.time() * 1000) - 750, is_sampled=number % 5 == 0)

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def under_load(**about: Any) -> tuple[FakeApplication, Feeder]:
    """Return an application that has run for three minutes."""
    application = FakeApplication(**about)
    feeder = Feeder(application)
    feeder.history(180)
    return application, feeder


def store_routes(entries: list[dict[str, Any]]) -> list[Route]:
    """Routes that answer the page's queries of stores as the admin server does."""

    async def scan(request: Request) -> Response:
        limit, start = int(request.query_params["limit"]), int(request.query_params.get("cursor", "0"))
        more = str(start + limit) if start + limit < len(entries) else None
        return JSONResponse({"epoch": 41_380, "rows": entries[start : start + limit], "cursor": more})

    async def get(request: Request) -> Response:
        for entry in entries:
            if entry["key"] == request.query_params["key"]:
                return JSONResponse({"epoch": 41_380, **entry})
        return JSONResponse({"error": "no such key", "code": "no_key", "epoch": 41_380}, 404)

    async def fetch(request: Request) -> Response:
        windows = [
            {"key": request.query_params["key"], "window_start": minute, "window_end": minute + 60_000, "value": count}
            for count, minute in enumerate((0, 60_000, 120_000))
        ]
        return JSONResponse({"epoch": 41_380, "rows": windows, "cursor": None})

    return [Route("/stores/{name}/range", scan), Route("/stores/{name}/get", get), Route("/stores/{name}/fetch", fetch)]


@contextmanager
def served(application: FakeApplication, *more: Route, token: str | None = None) -> Iterator[str]:
    """Serve an application's dashboard over HTTP, with the admin server's policy; yield the URL."""
    app = _guarded(Starlette(routes=[*routes(application.running), *more]), token)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def _guarded(app: ASGIApp, token: str | None) -> ASGIApp:
    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        given = dict(scope["headers"]).get(b"authorization")
        if token is not None and scope["path"] not in PUBLIC and given != f"Bearer {token}".encode():
            await JSONResponse({"error": "Missing or wrong token."}, 401)(scope, receive, send_with_policy)
        else:
            await app(scope, receive, send_with_policy)

    return guard


def request(application: FakeApplication, path: str, query: str = "") -> tuple[int, Mapping[str, str], bytes]:
    """Send one GET to the dashboard's routes, without a network; return status, headers and body."""
    started: dict[str, Any] = {}
    body = bytearray()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
        else:
            body.extend(message.get("body", b""))

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "headers": [], "root_path": ""}
    app = cast("Callable[[Scope, Receive, Send], Awaitable[None]]", Starlette(routes=routes(application.running)))
    anyio.run(app, scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in started["headers"]}
    return int(started["status"]), headers, bytes(body)


def snapshot(application: FakeApplication, query: str = "") -> dict[str, Any]:
    """Return the snapshot as the page gets it."""
    status, _, body = request(application, "/dashboard/snapshot", query)
    assert status == 200, body
    answer: dict[str, Any] = json.loads(body)
    return answer
