"""HTTP on one connection: uvicorn's protocol, with limits on what clients may send, how long they may take, how many there are.

The parser (llhttp, strict) refuses what is ambiguous; what it lets through and no client of ours needs is refused here. A request
that is refused is answered with 4xx, and its connection is closed.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import NoReturn, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

TARGET_BYTES = 8 * 1024
HEAD_BYTES = 16 * 1024
HEADERS = 64
BODY_BYTES = 64 * 1024
CONNECTIONS = 256
REQUEST_S = 10.0
"""From its first byte, or that of its connection, a request is to be complete within this time."""
KEEP_ALIVE_S = 30
WRITE_S = 30.0
"""A client that leaves an answer unread for so long is given up."""

_METHODS = (b"GET", b"HEAD", b"POST")
_VERSIONS = ("1.0", "1.1")


class LimitedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.access_log = False  # queries come by the thousand, and tokens or keys would be in it
        self.parser.set_dangerous_leniencies(lenient_data_after_close=False)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._refusal = (HTTPStatus.BAD_REQUEST, "not a well-formed request")
        self._waits_since: float | None = self.loop.time()
        self._is_whole = False
        self._begin()

    def _begin(self) -> None:
        """Nothing of a request is there yet."""
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
        """A client is here; if there are too many, the one that has kept us waiting the longest goes."""
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
        """The client is gone, or was sent away."""
        self._in_time()
        self._cancel_unread()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, of several, or of none."""
        self._unset_keepalive_if_required()
        if not self._is_answering:
            self._is_whole = False
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
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {HEAD_BYTES} bytes before the body")
        elif self._received > HEAD_BYTES + BODY_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {BODY_BYTES} bytes of body")
        elif self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_S, self._is_late)

    def on_response_complete(self) -> None:
        """An answer was handed to the transport."""
        super().on_response_complete()
        self._waits_since = self.loop.time()

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        super().pause_writing()
        self._unread = self.loop.call_later(WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It has caught up."""
        super().resume_writing()
        self._cancel_unread()

    def timeout_keep_alive_handler(self) -> None:
        """No further request came; one who has not even read the last answer is not waited for."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    # ---- the parser ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins. One that is sent before the answer to the last is there has no place here."""
        if self._is_answering:
            self.transport.abort()
            self._stop_parsing(HTTPStatus.BAD_REQUEST, "a request before the answer to the last")
        self._is_whole = False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        super().on_url(url)
        if len(self.url) > TARGET_BYTES:
            self._stop_parsing(HTTPStatus.REQUEST_URI_TOO_LONG, f"more than {TARGET_BYTES} bytes of path and query")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        if self._has_head:
            self._stop_parsing(HTTPStatus.BAD_REQUEST, "headers behind the body are not taken")
        self._head_bytes += len(name) + len(value)
        if self._head_bytes > HEAD_BYTES or len(self.headers) >= HEADERS:
            why = f"more than {HEADERS} headers, or {HEAD_BYTES} bytes of them"
            self._stop_parsing(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """All headers are there: the last moment to refuse a request before anybody works on it."""
        if self.parser.get_method() not in _METHODS:
            self._stop_parsing(HTTPStatus.METHOD_NOT_ALLOWED, "the methods are GET, HEAD and POST")
        if self.parser.get_http_version() not in _VERSIONS:
            self._stop_parsing(HTTPStatus.BAD_REQUEST, "this server speaks HTTP/1.1")
        if self.parser.should_upgrade() or not self.url.startswith(b"/"):
            self._stop_parsing(HTTPStatus.BAD_REQUEST, "this server is no proxy, and speaks nothing but HTTP/1.1")
        for name, value in self.headers:
            if name == b"content-length" and int(value) > BODY_BYTES:
                self._stop_parsing(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {BODY_BYTES} bytes of body")
        super().on_headers_complete()
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        if self._body_bytes > BODY_BYTES:
            self._stop_parsing(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {BODY_BYTES} bytes of body")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is there as a whole."""
        self._is_whole = True
        self._waits_since = None if self._is_answering else self._waits_since
        self._begin()
        super().on_message_complete()

    # ---- sent away ----------------------------------------------------------------------------------------------------

    def _stop_parsing(self, status: HTTPStatus, why: str) -> NoReturn:
        self._refusal = (status, why)
        raise ValueError(why)  # the parser makes a parser's error of it

    def _is_late(self) -> None:
        self._deadline = None
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"the request was not complete after {REQUEST_S:g} s")

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        """Answer with an error and close; where an answer was given or has begun already, only close."""
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
