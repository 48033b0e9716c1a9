"""Reads of one key, answered while the request is parsed: a task, ASGI messages and a route would cost much more than the read.

The guard checks them like all requests. Only what is found, or known to be missing, is answered here; everything else is left to
the route, which also says what is wrong.
"""

from __future__ import annotations

from contextlib import suppress
from http import HTTPStatus

from penstock.admin.guard import Guard
from penstock.admin.queries import JSON, answer_of, parameters
from penstock.queries import StoreAnswers
from penstock.runtime.application import RunningApplication
from penstock.state import StoreKind

_STORES, _GET, _KEY = b"/stores/", b"/get", b"key="
_ESCAPES = frozenset(b"%+&")
_ONE_VALUE = (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED)

Header = tuple[bytes, bytes]


class PointReads:
    """Answers `GET /stores/{name}/get?key=…`."""

    def __init__(self, running: RunningApplication, guard: Guard) -> None:
        self._running = running
        self._guard = guard
        self._stores: dict[bytes, StoreAnswers] = {}
        self._defaults: list[Header] = []
        self._heads: dict[int, bytes] = {}

    def response(self, target: bytes, headers: list[Header], server: object, defaults: list[Header]) -> bytes | None:
        """Return the whole response, with the `defaults` of all responses; None to leave the request to its route."""
        with suppress(Exception):  # the route finds the same error again, and reports it
            answer = self._answer(target, headers, server)
            if answer is not None:
                status, body = answer
                return b"%s%d\r\n\r\n%s" % (self._head(status, defaults), len(body), body)
        return None

    def _answer(self, target: bytes, headers: list[Header], server: object) -> tuple[int, bytes] | None:
        path, _, query = target.partition(b"?")
        state = self._running.committed_state
        if not query.startswith(_KEY) or not state.is_at_hand:
            return None
        if self._guard.refusal({"method": "GET", "path": path.decode("ascii"), "headers": headers, "server": server}) is not None:
            return None
        store = self._stores.get(path) or self._known(path)
        if store is None:
            return None
        if _ESCAPES.isdisjoint(query):
            key = query[len(_KEY) :].decode("ascii")
        else:
            given = parameters(query)
            if len(given) > 1:
                return None
            key = given["key"]
        return answer_of(*store.get(store.key(key)))

    def _known(self, path: bytes) -> StoreAnswers | None:
        """Return the store that a path names, if it has one value per key."""
        if not path.endswith(_GET):
            return None
        state, name = self._running.committed_state, path[len(_STORES) : -len(_GET)].decode("ascii")
        if name not in state.specs or state.specs[name].kind not in _ONE_VALUE:
            return None
        store = self._stores[path] = StoreAnswers(state, name)
        return store

    def _head(self, status: int, defaults: list[Header]) -> bytes:
        """Return a response up to its length; it is the same until the date changes."""
        if defaults is not self._defaults:
            self._defaults, self._heads = defaults, {}
        head = self._heads.get(status)
        if head is None:
            lines = b"".join(b"%s: %s\r\n" % header for header in (*defaults, JSON))
            head = self._heads[status] = b"HTTP/1.1 %d %s\r\n%scontent-length: " % (
                status,
                HTTPStatus(status).phrase.encode(),
                lines,
            )
        return head
