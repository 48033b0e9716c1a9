"""The routes that query stores: point reads, pages of rows, windows, SQL.

A point read is answered in the server's event loop, most of them even before they get here (`point_reads`); what may take longer
runs in a thread.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from anyio import CapacityLimiter, to_thread
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from penstock.errors import NotReadyError, PenstockError, QueryError, UnknownStoreError
from penstock.queries import CommittedState, StoreAnswers
from penstock.queries.forms import encoded, strict_json
from penstock.queries.pages import Bounds
from penstock.runtime.application import RunningApplication
from penstock.state import MAX_TIME, StoreKind
from penstock.timing import instant_ms

ROWS, MOST_ROWS = 100, 1_000
MOST_KEYS = 1_000
SQL_BYTES = 16 << 20
SQL_S = 10.0
WAIT_S = 5.0
"""How long a query waits for `at_least_epoch`."""

_FEW_KEYS = 50
"""So many keys are read in the event loop: a thread would cost more than the reads."""

_BODY_BYTES = 1 << 20
_POLL_S = 0.01
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_STATUS = ((UnknownStoreError, HTTPStatus.NOT_FOUND), (NotReadyError, HTTPStatus.SERVICE_UNAVAILABLE))
JSON = (b"content-type", b"application/json")
_VERSIONS = (StoreKind.VERSIONED,)

ASKING = re.compile(r"/sql|/stores/[^/]+/get")
"""Paths that only read, but use POST because their parameters do not fit into a URL."""

Parameters = Mapping[str, str]
Answered = tuple[int, bytes]


def routes(running: RunningApplication) -> list[Route]:
    """The routes of this module."""
    stores = Stores(running)
    read = ["GET"]
    return [
        Route("/stores", Endpoint(stores.listed), methods=read),
        Route("/stores/{name}/get", Endpoint(stores.get, stores.get_many), methods=[*read, "POST"]),
        Route("/stores/{name}/range", Endpoint(stores.range), methods=read),
        Route("/stores/{name}/fetch", Endpoint(stores.fetch), methods=read),
        Route("/sql", Endpoint(None, stores.sql), methods=["POST"]),
    ]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route without Starlette's layers, which would cost as much as the point read itself."""

    get: Callable[[str, Parameters], Awaitable[Answered]] | None
    post: Callable[[str, Any], Awaitable[Answered]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        name = scope["path_params"].get("name", "")
        try:
            if scope["method"] == "POST":
                assert self.post is not None
                status, body = await self.post(name, strict_json(await _body(receive)))
            else:
                assert self.get is not None
                status, body = await self.get(name, parameters(scope["query_string"]))
        except PenstockError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), HTTPStatus.BAD_REQUEST)
            body = encoded({"error": str(error), "code": error.code})
        headers = [JSON, (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class Stores:
    """The queries of an application's stores."""

    def __init__(self, running: RunningApplication) -> None:
        self._running = running
        self._known: dict[str, StoreAnswers] = {}
        self._threads = CapacityLimiter(2)

    async def listed(self, name: str, given: Parameters) -> Answered:
        """List the stores."""
        _only(given)
        state = self._running.committed_state
        shared = state.program.global_stores
        stores = [
            {
                "name": store,
                "kind": spec.kind.value,
                "key": repr(spec.serdes[0]),
                "value": repr(spec.serdes[1]),
                "is_global": spec.name in shared,
            }
            for store, spec in sorted(state.specs.items())
        ]
        return 200, encoded({"epoch": state.epoch, "stores": stores})

    async def get(self, name: str, given: Parameters) -> Answered:
        """Return one entry; from a versioned store, the newest version or the one valid at `as_of`."""
        if len(given) > 1 or "key" not in given:
            _only(given, "key", "as_of", "at_least_epoch")
        state, store = await self._ready(name, given)
        key = store.key(_needed(given, "key"))
        if "as_of" in given or state.specs[name].kind in _VERSIONS:
            entry, epoch = store.version(key, _time(given, "as_of", MAX_TIME))
        else:
            entry, epoch = store.get(key)
        return answer_of(entry, epoch)

    async def get_many(self, name: str, body: Any) -> Answered:
        """Return many entries, all of one epoch; null for a key that has none."""
        _members(body, {"keys"}, {"at_least_epoch"})
        given = {"at_least_epoch": str(body["at_least_epoch"])} if "at_least_epoch" in body else {}
        _, store = await self._ready(name, given)
        keys = body["keys"]
        if not isinstance(keys, list) or len(keys) > MOST_KEYS:
            raise QueryError(f"Invalid keys: expected a list of at most {MOST_KEYS} keys.")
        wanted = [store.key(key if isinstance(key, str) else encoded(key).decode()) for key in keys]
        if len(wanted) <= _FEW_KEYS:
            epoch, entries = store.get_all(wanted)
        else:
            epoch, entries = await to_thread.run_sync(store.get_all, wanted, limiter=self._threads)
        found = b",".join(b"null" if entry is None else b"{%s}" % entry for entry in entries)
        return 200, b'{"epoch":%d,"entries":[%s]}' % (epoch, found)

    async def range(self, name: str, given: Parameters) -> Answered:
        """Return a page of rows, in the order of the keys' bytes."""
        _only(given, "from", "to", "prefix", "from_time", "to_time", "limit", "cursor", "at_least_epoch")
        _, store = await self._ready(name, given)
        limit, cursor = _limit(given), given.get("cursor")
        if "prefix" in given and ("from" in given or "to" in given):
            raise QueryError("prefix cannot be combined with from or to: remove one of them.")
        lower, upper = (store.key(given[end]) if end in given else None for end in ("from", "to"))
        if lower is not None and upper is not None and lower > upper:
            raise QueryError(f"from {given['from'][:50]!r} sorts after to {given['to'][:50]!r} (by bytes): swap them.")
        prefix = store.prefix(given["prefix"]) if "prefix" in given else None
        bounds = Bounds(lower, upper, prefix, *_times(given, "from_time", "to_time"))
        return 200, await to_thread.run_sync(store.range, bounds, limit, cursor, limiter=self._threads)

    async def fetch(self, name: str, given: Parameters) -> Answered:
        """Return a page of a key's windows, sessions or versions, by time."""
        _only(given, "key", "from", "to", "limit", "cursor", "at_least_epoch")
        _, store = await self._ready(name, given)
        key, limit, cursor = store.key(_needed(given, "key")), _limit(given), given.get("cursor")
        bounds = Bounds(None, None, None, *_times(given, "from", "to"))
        return 200, await to_thread.run_sync(store.fetch, key, bounds, limit, cursor, limiter=self._threads)

    async def sql(self, name: str, body: Any) -> Answered:
        """Return the result of one SQL query, in which stores are tables."""
        _members(body, {"sql"}, {"limit"})
        text, limit = body["sql"], body.get("limit", ROWS)
        if not isinstance(text, str):
            raise QueryError("Invalid sql: expected a string.")
        if type(limit) is not int or not 1 <= limit <= MOST_ROWS:
            raise QueryError(f"Invalid limit {repr(limit)[:50]}: expected a whole number from 1 to {MOST_ROWS}.")
        first = self._running.committed_state.epoch
        table = await to_thread.run_sync(self._running.guarded_sql, text, limit, SQL_BYTES, SQL_S)
        columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
        rows = list(zip(*(column.to_pylist() for column in table.slice(0, limit).columns), strict=True))
        epochs = [first, self._running.committed_state.epoch]
        return 200, encoded({"epochs": epochs, "columns": columns, "rows": rows, "is_complete": table.num_rows <= limit})

    async def _ready(self, name: str, given: Parameters) -> tuple[CommittedState, StoreAnswers]:
        """Return the store, after making sure that there is a current snapshot."""
        state = self._running.committed_state
        if "at_least_epoch" in given:
            await _come_to(state, _whole(given, "at_least_epoch", 0, MAX_TIME))
        store = self._known.get(name)
        if store is None:
            store = self._known[name] = StoreAnswers(state, name)
        if not state.is_at_hand:
            await to_thread.run_sync(state.current, limiter=self._threads)
        return state, store


def answer_of(entry: bytes | None, epoch: int) -> Answered:
    """Return the response with one entry."""
    if entry is None:
        return 404, encoded({"error": "no such key", "code": "no_key", "epoch": epoch})
    return 200, b'{"epoch":%d,%s}' % (epoch, entry)


async def _come_to(state: CommittedState, epoch: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while state.epoch < epoch and time.monotonic() < deadline:  # noqa: ASYNC110 - epochs are committed in another thread
        await asyncio.sleep(_POLL_S)
    state.wait_for(epoch, 0)


async def _body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > _BODY_BYTES:
            raise QueryError(f"The body exceeds {_BODY_BYTES} bytes.")
        if not message.get("more_body"):
            return bytes(body)


def parameters(query: bytes) -> Parameters:
    """Return the parameters of a query string."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise QueryError("Invalid query string: the parameters are not UTF-8, or too many.") from None
    given = dict(pairs)
    if len(given) < len(pairs):
        raise QueryError("A parameter is given twice.")
    return given


def _only(given: Iterable[str], *names: str) -> None:
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise QueryError(f"Unknown parameter {unknown[0][:50]!r}. Known parameters: {', '.join(names) or 'none'}.")


def _members(body: Any, needed: set[str], others: set[str]) -> None:
    if not isinstance(body, dict) or not needed <= body.keys() <= needed | others:
        names = " and ".join(sorted(needed))
        raise QueryError(f"Invalid body: expected a JSON object with {names}, and optionally {', '.join(sorted(others))}.")


def _needed(given: Parameters, name: str) -> str:
    if name not in given:
        raise QueryError(f"Missing parameter {name!r}.")
    return given[name]


def _whole(given: Parameters, name: str, least: int, most: int) -> int:
    text = given[name]
    if not _NUMBER.fullmatch(text) or not least <= int(text) <= most:
        raise QueryError(f"Invalid {name} {text[:50]!r}: expected a whole number from {least} to {most}.")
    return int(text)


def _limit(given: Parameters) -> int:
    return _whole(given, "limit", 1, MOST_ROWS) if "limit" in given else ROWS


def _times(given: Parameters, first: str, last: str) -> tuple[int, int]:
    times = _time(given, first, 0), _time(given, last, MAX_TIME)
    if times[0] > times[1]:
        raise QueryError(f"{first} ({times[0]}) is later than {last} ({times[1]}): swap them.")
    return times


def _time(given: Parameters, name: str, default: int) -> int:
    """Return a time, given as Unix milliseconds or ISO 8601."""
    if name not in given:
        return default
    text = given[name]
    return _whole(given, name, 0, MAX_TIME) if _NUMBER.fullmatch(text) else instant_ms(text[:50], name)
