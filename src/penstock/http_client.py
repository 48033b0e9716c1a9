"""Requests over HTTP: each with a deadline for the whole of it, a limit on the answer, and without redirects."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import NamedTuple
from urllib.parse import urlsplit

FAILURES = (OSError, http.client.HTTPException)
"""What `send` raises if there is no answer."""

_CLOSED = (ConnectionError, http.client.HTTPException, ssl.SSLError)
_MOST_KEPT = 8

_Kept = dict[tuple[int, str, str], list[http.client.HTTPConnection]]
"""Connections that wait for a request, by the process, the scheme and the address."""


class Answer(NamedTuple):
    """The status and the content of an answer."""

    status: int
    content: bytes


class AnswerTooLargeError(Exception):
    """An answer has more bytes than the client accepts."""


class HttpClient:
    """Sends requests to servers, and keeps connections to them for later GETs.

    A request takes at most `timeout_s`, however slowly the answer arrives; its content has at most `most_bytes`. `context` makes
    the context of TLS when it is first needed; by default it trusts what the system does. Threads may share a client.
    """

    def __init__(
        self, timeout_s: float, most_bytes: int, context: Callable[[], ssl.SSLContext] = ssl.create_default_context
    ) -> None:
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._make_context = context
        self._kept: _Kept = {}
        weakref.finalize(self, _close, self._kept)

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> Answer:
        """Return the answer to a request; raise one of `FAILURES` if there is none, or `AnswerTooLargeError`.

        Only a GET uses a connection that was used before: the server may have closed it, and then the request is sent again.
        """
        parts = urlsplit(url)
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        kept = self._kept.setdefault((os.getpid(), parts.scheme, parts.netloc), [])  # a forked process makes its own
        if method == "GET":
            with suppress(IndexError, *_CLOSED):
                return self._exchange(kept.pop(), kept, method, path, headers, body)
        return self._exchange(self._connection(parts.scheme, parts.hostname or "", parts.port), kept, method, path, headers, body)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        kept: list[http.client.HTTPConnection],
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> Answer:
        is_whole = False
        try:
            with self._ended_in_time(connection):
                connection.request(method, path, body, dict(headers))
                response = connection.getresponse()
                content = response.read(self._most_bytes + 1)
                if len(content) > self._most_bytes:
                    raise AnswerTooLargeError(f"the answer to {method} {path} has more than {self._most_bytes} bytes")
                if response.length:
                    raise http.client.IncompleteRead(content, response.length)
            is_whole = not response.will_close
            return Answer(response.status, content)
        finally:
            if is_whole and len(kept) < _MOST_KEPT:
                kept.append(connection)
            else:
                connection.close()

    @contextmanager
    def _ended_in_time(self, connection: http.client.HTTPConnection) -> Iterator[None]:
        """End the connection if the block takes too long: a timeout of the socket starts again with every byte that arrives."""
        is_late = threading.Event()

        def end() -> None:
            is_late.set()
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(self._timeout_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except FAILURES:
            if not is_late.is_set():
                raise
        finally:
            timer.cancel()
        if is_late.is_set():
            raise TimeoutError(f"no whole answer within {self._timeout_s:g} s")

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return self._make_context()


def _close(kept: _Kept) -> None:
    for connections in kept.values():
        for connection in connections:
            connection.close()
