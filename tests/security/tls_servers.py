"""Servers with an invalid TLS setup, each in its own way, for clients of both libraries."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from verification.harness.secure import Authority, Certificate

TIMEOUT_S = 20


class Server:
    """Does a TLS handshake, or none, and keeps what the client sends afterwards."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.received = b""
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
                connection.settimeout(1)
                with connection if self._context is None else self._context.wrap_socket(connection, server_side=True) as open_one:
                    self.received += open_one.recv(4_096)
            except TimeoutError:
                continue
            except ssl.SSLError:
                continue
            except OSError:
                if self._listener.fileno() < 0:
                    return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(TIMEOUT_S)


@contextmanager
def serving(certificate: Certificate | None, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> Iterator[Server]:
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.certificate, certificate.key)
        if newest is ssl.TLSVersion.TLSv1:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = newest
    server = Server(context)
    try:
        yield server
    finally:
        server.close()


FAULTS: dict[str, Callable[[Authority, Path], Certificate | None]] = {
    "expired": lambda authority, _: authority.issue("expired", days=-1),
    "wrong host": lambda authority, _: authority.issue("elsewhere", alternatives="DNS:elsewhere.invalid,IP:127.0.0.9"),
    "self-signed": lambda authority, _: authority.self_signed("self-signed"),
    "another authority": lambda _, directory: Authority(directory).issue("other"),
    "plain text": lambda *_: None,
    "TLS 1.0": lambda authority, _: authority.issue("old"),
}


@contextmanager
def faulty(fault: str, authority: Authority, directory: Path) -> Iterator[Server]:
    """A server with an invalid TLS setup; `directory` is for another authority."""
    newest = ssl.TLSVersion.TLSv1 if fault == "TLS 1.0" else ssl.TLSVersion.MAXIMUM_SUPPORTED
    with serving(FAULTS[fault](authority, directory), newest) as server:
        yield server
