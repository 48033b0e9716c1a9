"""Connections between the hosts of an application: TLS 1.3, with an identity that follows from a key both sides know.

Whoever knows the key has its only certificate, and accepts no other. So both sides are authenticated, and nobody on the way can
read, change or replay what they say.
"""

from __future__ import annotations

import select
import socket
import ssl
import tempfile
import time
from contextlib import ExitStack
from datetime import datetime, timezone
from functools import lru_cache
from math import inf
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from penstock.errors import StateError

KEY_BYTES = 32
_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "penstock")])
_FROM, _TO = datetime(2000, 1, 1, tzinfo=timezone.utc), datetime(9999, 1, 1, tzinfo=timezone.utc)
"""Whatever the clock says: a key lives as long as one start."""


class _Contexts(NamedTuple):
    server: ssl.SSLContext
    client: ssl.SSLContext


def secured(connection: socket.socket, key: bytes, *, is_server: bool) -> ssl.SSLSocket:
    """Return a connection as a secured one; raises `StateError` if the other side does not know the key.

    The connection's time limit holds for the hand-shake as a whole: a stranger who sends a byte now and then gets no more.
    """
    contexts = _contexts(key)
    context = contexts.server if is_server else contexts.client
    limit_s = connection.gettimeout()
    with ExitStack() as opened:
        found = opened.enter_context(context.wrap_socket(connection, server_side=is_server, do_handshake_on_connect=False))
        try:
            _shake_hands(found, inf if limit_s is None else time.monotonic() + limit_s)
        except ssl.SSLEOFError as error:
            raise EOFError("The connection was closed.") from error
        except ssl.SSLError as error:
            raise StateError(f"The other side does not know the key of this application: {error.reason}.") from error
        found.settimeout(limit_s)
        opened.pop_all()
        return found


def _shake_hands(connection: ssl.SSLSocket, deadline: float) -> None:
    connection.setblocking(False)
    while True:
        try:
            connection.do_handshake()
        except ssl.SSLWantReadError:
            wanted = select.POLLIN
        except ssl.SSLWantWriteError:
            wanted = select.POLLOUT
        else:
            return
        left_s = deadline - time.monotonic()
        poll = select.poll()
        poll.register(connection, wanted)
        if left_s <= 0 or not poll.poll(None if left_s == inf else left_s * 1_000):
            raise TimeoutError("The other side has not proved in time that it knows the key.")


def fill(connection: socket.socket, view: memoryview) -> None:
    """Receive exactly as many bytes as the view has; raises `EOFError` if the other side has closed the connection."""
    place = 0
    while place < len(view):
        found = connection.recv_into(view[place:])
        if not found:
            raise EOFError("the other process has closed its socket")
        place += found


def is_readable(connection: socket.socket, within_s: float) -> bool:
    """Whether there is something to receive within a time; a secured connection may have received it already.

    Raises `EOFError` if another thread has closed it.
    """
    if isinstance(connection, ssl.SSLSocket) and connection.pending():
        return True
    poll = select.poll()
    try:
        poll.register(connection, select.POLLIN)
    except ValueError as error:
        raise EOFError("it was closed") from error
    return bool(poll.poll(max(0.0, within_s) * 1_000))


@lru_cache(maxsize=8)
def _contexts(key: bytes) -> _Contexts:
    private, certificate = _identity(key)
    server, client = (ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    client.check_hostname = False  # hosts have no names here: the certificate is the identity
    server.num_tickets = 0
    for context in (server, client):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=certificate.decode())
        with tempfile.NamedTemporaryFile() as file:  # only this user can read it; Python reads keys from files alone
            file.write(private + certificate)
            file.flush()
            context.load_cert_chain(file.name)
    return _Contexts(server, client)


def _identity(key: bytes) -> tuple[bytes, bytes]:
    """Return the private key and the certificate that follow from a key, always the same: Ed25519 signs without chance."""
    private = Ed25519PrivateKey.from_private_bytes(key)
    built = x509.CertificateBuilder(_NAME, _NAME, private.public_key(), 1, _FROM, _TO)
    certificate = built.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(private, None)
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem, certificate.public_bytes(Encoding.PEM)
