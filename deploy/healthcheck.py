"""Exits with 0 if the application of this container is live: for HEALTHCHECK, and for probes that run a command.

`healthcheck.py /health/ready` tells whether it is ready. It asks the admin server at PENSTOCK_ADMIN_ADDRESS and needs nothing but
the standard library.
"""

from __future__ import annotations

import ipaddress
import os
import ssl
import sys
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection

_TIMEOUT_S = 4


def status(path: str, address: str) -> int:
    """Return the status of the response to a request for `path` at `address`, `host:port`; over TLS if the server wants that."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if _is_any(host):
        host = "::1" if ":" in host else "127.0.0.1"
    try:
        return _answered(HTTPConnection(host, int(port), timeout=_TIMEOUT_S), path)
    except (HTTPException, ConnectionResetError):  # what a server with a certificate sends, if anything, is not HTTP
        return _answered(HTTPSConnection(host, int(port), timeout=_TIMEOUT_S, context=_unverified()), path)


def main() -> None:
    """Ask, and exit with a message if the answer is not OK."""
    path = sys.argv[1] if len(sys.argv) > 1 else "/health/live"
    address = os.environ.get("PENSTOCK_ADMIN_ADDRESS", "127.0.0.1:7070")
    try:
        found = status(path, address)
    except (OSError, HTTPException, ValueError) as error:
        sys.exit(f"{path} at {address}: {type(error).__name__}: {error}")
    if found != HTTPStatus.OK:
        sys.exit(f"{path} at {address}: {found}")


def _answered(connection: HTTPConnection, path: str) -> int:
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:  # a name
        return False


def _unverified() -> ssl.SSLContext:
    """Return a context that accepts any certificate: the request does not leave the container and carries no token."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


if __name__ == "__main__":
    main()
