"""Where the admin server listens: on loopback, or elsewhere with a token and TLS; and the limit on open sockets."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import weakref
from pathlib import Path
from typing import Any

from penstock.config import OFF, Config
from penstock.errors import ConfigError

_BACKLOG = 128
_SOCKETS = 320
"""More than the protocol's limit: this also counts connections that are still in their TLS handshake."""


class BoundedSocket(socket.socket):
    """A listening socket that closes new connections when too many are open, to save the application's file handles."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._accepted: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection; raise `ConnectionAbortedError`, which asyncio ignores, if there are too many."""
        accepted, address = super().accept()
        self._accepted.add(accepted)
        if sum(one.fileno() >= 0 for one in self._accepted) > _SOCKETS:
            accepted.close()
            raise ConnectionAbortedError
        return accepted, address


def listen(config: Config) -> BoundedSocket:
    """Return a socket that listens at the configured address."""
    assert config.admin_endpoint is not None
    host, port = config.admin_endpoint
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise ConfigError(f"admin_address: cannot resolve {host!r} to an address of this machine: {error.strerror}") from None
    _check_exposure(config, str(address[0]))
    listener = BoundedSocket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"admin_address: cannot listen at {config.admin_address!r}: {error.strerror}; set another address, "
            f"PENSTOCK_ADMIN_ADDRESS=127.0.0.1:0 for any free port, or {OFF!r} for no admin server"
        ) from None
    listener.setblocking(False)
    return listener


def tls(config: Config) -> ssl.SSLContext | None:
    """Return the TLS settings; None without a certificate."""
    certificate, key = config.admin_certificate, config.admin_key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "admin_certificate" if certificate is None else "admin_key"
        raise ConfigError(f"{missing}: not set; TLS needs both admin_certificate and admin_key")
    for name, path in (("admin_certificate", certificate), ("admin_key", key)):
        _check_file(name, path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key, password="")  # without one, OpenSSL would prompt on the terminal
    except ssl.SSLError as error:
        why = f"{certificate} and {key} must be a certificate chain and its unencrypted private key, both PEM"
        raise ConfigError(f"admin_certificate: {why} ({error.reason})") from None
    return context


def _check_exposure(config: Config, address: str) -> None:
    if ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return
    needed = ("admin_token", "admin_certificate", "admin_key")
    missing = [name for name in needed if getattr(config, name) is None]
    if missing:
        raise ConfigError(
            f"admin_address: {config.admin_address!r} can be reached from other machines, which requires {', '.join(needed)}; "
            f"set {', '.join(missing)}, or listen at 127.0.0.1"
        )


def _check_file(name: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {str(path)!r}: {error.strerror}") from None
