"""HTTP on one connection: uvicorn's protocol, with limits on request size, time and number of connections.

The parser (llhttp, strict) refuses ambiguous requests; this module also refuses valid ones that no client of ours needs. A
refused request is answered with 4xx, and its connection is closed.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import NoReturn, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from penstock.admin.point_reads import PointReads

TARGET_BYTES = 8 * 1024
HEAD_BYTES = 16 * 1024
HEADERS = 64
BODY_BYTES = 64 * 1024
CONNECTIONS = 256
REQUEST_S = 10.0
"""A request must be complete within this time after its first byte, or after its connection was opened."""
KEEP_ALIVE_S = 30
WRITE_S = 30.0
"""A client that leaves a response unread for this long is disconnected."""

_METHODS = (b"GET", b"HEAD", b"POST")
_VERSIONS = ("1.0", "1.1")
_STORES = b"/stores/"
_SPECIAL = (b"content-length", b"transfer-encoding", b"expect", b"upgrade")
"""Headers of requests that may have a body, or want more than an answer."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        reads: PointReads | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.access_log = False  # there are thousands of queries, and their lines would hold tokens or keys
        self.parser.set_dangerous_leniencies(lenient_data_after_close=False)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._refusal = (HTTPStatus.BAD_REQUEST, "The request is not well-formed HTTP/1.1.")
        self._waits_since: float | None = self.loop.time()
        self._is_whole = False
        self._reads = reads
        self._response: bytes | None = None
        self._has_responded = False
        self._begin()

    def _begin(self) -> None:
        """Reset the counters for the next request."""
        self._received = 0
        self._head_bytes = 0
        self._body_bytes = 0
        self._has_head = False

    @property
    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    # ---- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accept a client; if there are too many, disconnect the one that has been idle the longest."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(REQUEST_S, self._is_late)
        if len(self.connections) > CONNECTIONS:
            self._make_room()

    def _make_room(self) -> None:
        staying = [one for one in cast("set[LimitedProtocol]", self.connections) if not one.transport.is_closing()]
        if len(staying) > CONNECTIONS:
            waiting = [one for one in staying if one is not self and one._waits_since is not None]
            leaving = min(waiting, key=lambda one: one._waits_since or 0.0, default=self)
            leaving.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after the client has left or was disconnected."""
        self._in_time()
        self._cancel_unread()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes, which may hold part of a request or several requests."""
        if not self._is_answering:
            self._is_whole = False
        self._has_responded = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse(*self._refusal)
            return
        if self._is_whole:
            self._in_time()
            return
        self._received += len(data)
        if not self._has_head and self._received > HEAD_BYTES:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"More than {HEAD_BYTES} bytes before the body.")
        elif self._received > HEAD_BYTES + BODY_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body exceeds {BODY_BYTES} bytes.")
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self._is_late)

    def on_response_complete(self) -> None:
        """Note that a response was passed to the transport."""
        super().on_response_complete()
        self._waits_since = self.loop.time()

    def pause_writing(self) -> None:
        """Start a timer while the client reads more slowly than we write."""
        super().pause_writing()
        self._unread = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel the timer: the client has caught up."""
        super().resume_writing()
        self._cancel_unread()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; abort it if the client has not even read the last response.

        A request does not cancel the timer, because that would cost as much as parsing it; so this may be too early.
        """
        self.timeout_keep_alive_task = None
        if self._waits_since is None or self._deadline is not None:
            return  # a request is being answered, or being received: its response starts the timer again
        rest = self._waits_since + self.timeout_keep_alive - self.loop.time()
        if rest > 0:
            self.timeout_keep_alive_task = self.loop.call_later(rest, self.timeout_keep_alive_handler)
            return
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    # ---- the parser ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a request. Pipelining (sending it before the last response) is not supported."""
        if self._is_answering or self._has_responded:
            self.transport.abort()
            self._stop_parsing(HTTPStatus.BAD_REQUEST, "Pipelining is not supported: wait for the last response.")
        self._is_whole = False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request's target."""
        super().on_url(url)
        if len(self.url) > TARGET_BYTES:
            self._stop_parsing(HTTPStatus.REQUEST_URI_TOO_LONG, f"Path and query exceed {TARGET_BYTES} bytes.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        if self._has_head:
            self._stop_parsing(HTTPStatus.BAD_REQUEST, "Headers after the body (trailers) are not supported.")
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES or len(self.headers) >= HEADERS:
            why = f"More than {HEADERS} headers, or more than {HEAD_BYTES} bytes of headers."
            self._stop_parsing(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Check the complete headers: the last chance to refuse a request before it is handled."""
        if self.parser.get_method() not in _METHODS:
            self._stop_parsing(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET, HEAD and POST are supported.")
        if self.parser.get_http_version() not in _VERSIONS:
            self._stop_parsing(HTTPStatus.BAD_REQUEST, "Only HTTP/1.1 and HTTP/1.0 are supported.")
        if self.parser.should_upgrade() or not self.url.startswith(b"/"):
            self._stop_parsing(HTTPStatus.BAD_REQUEST, "Upgrades and proxy requests are not supported.")
        is_read = self.url.startswith(_STORES) and self.parser.get_method() == b"GET" and self.parser.get_http_version() == "1.1"
        for name, value in self.headers:
            if name == b"content-length" and int(value) > BODY_BYTES:
                self._stop_parsing(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body exceeds {BODY_BYTES} bytes.")
            is_read = is_read and name not in _SPECIAL
        if is_read and self._reads is not None and self.parser.should_keep_alive() and not self.transport.get_write_buffer_size():
            self._response = self._reads.response(self.url, self.headers, self.server, self.server_state.default_headers)
        if self._response is None:
            super().on_headers_complete()
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > BODY_BYTES:
            self._stop_parsing(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The body exceeds {BODY_BYTES} bytes.")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Hand over the complete request."""
        self._is_whole = True
        self._waits_since = None if self._is_answering else self._waits_since
        self._begin()
        if self._response is None:
            super().on_message_complete()
            return
        self.transport.write(self._response)
        self._response, self._has_responded = None, True
        self.server_state.total_requests += 1
        self._waits_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, self.timeout_keep_alive_handler)

    # ---- refusals -----------------------------------------------------------------------------------------------------

    def _stop_parsing(self, status: HTTPStatus, why: str) -> NoReturn:
        self._refusal = (status, why)
        raise ValueError(why)  # the parser turns it into an HttpParserError

    def _is_late(self) -> None:
        self._deadline = None
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The request was not complete after {REQUEST_S:g} s.")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Respond with an error and close the connection; only close it if a response has already begun or ended."""
        if self._has_head and self.cycle.response_complete:
            self.transport.close()
        if self.transport.is_closing():
            return
        if self._is_answering:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            if self.cycle.response_started:
                self.transport.abort()
                return
        body = b'{"error":"%s"}' % why.encode()
        headers = [
            *self.server_state.default_headers,
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(b"HTTP/1.1 %d %s\r\n%s\r\n%s" % (status, status.phrase.encode(), lines, body))
        self.transport.close()

    def _in_time(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _cancel_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
