"""Requests to the admin server of a running application: JSON in and out, the token never shown, no redirect followed."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.config import Secret
from penstock.errors import BrokerError, ConfigError

TOKEN_VARIABLE = "PENSTOCK_ADMIN_TOKEN"  # noqa: S105 - its name
_TIMEOUT_S = 30.0
_MOST_BYTES = 64 << 20


class UnreachableError(BrokerError):
    """Nobody answers at the admin server's address."""

    code = "unreachable"


class RefusedRequestError(ConfigError):
    """The admin server does not answer what it was asked; says why. `reason` is the server's own code for it."""

    code = "refused"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AdminConnection:
    """Where an application is asked, and the token that is shown there."""

    host: str
    port: int
    is_secure: bool
    token: Secret | None = None

    @classmethod
    def at(cls, address: str, token: str | None = None) -> AdminConnection:
        """The server at `http://host:port`; `token` says where the token is, otherwise the environment may have it."""
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"} or parts.username:
            raise ConfigError(f"--admin: expected http://host:port or https://host:port, got {parts.scheme}://{parts.hostname}…")
        is_secure = parts.scheme == "https"
        found = _token(token)
        if found is not None and not is_secure and not _is_loopback(parts.hostname):
            raise ConfigError("--admin: a token is not sent to another machine in clear; use https://")
        return cls(parts.hostname, parts.port or (443 if is_secure else 80), is_secure, found)

    def get(self, path: str) -> Any:
        """What the server has there."""
        return self._ask("GET", path, None)

    def post(self, path: str, body: object) -> Any:
        """What the server answers to this."""
        return self._ask("POST", path, json.dumps(body).encode())

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token.reveal()}"
        connection = self._connection()
        try:
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                status, data = response.status, response.read(_MOST_BYTES + 1)
        except (OSError, http.client.HTTPException) as error:
            raise UnreachableError(
                f"no admin server at {self.host}:{self.port} ({type(error).__name__}): is the application running, "
                f"and is this its admin_address?"
            ) from None
        finally:
            connection.close()
        if len(data) > _MOST_BYTES:
            raise RefusedRequestError(f"{path}: the answer is more than {_MOST_BYTES >> 20} MiB; ask for less (limit)")
        return _answer(path, status, data)

    def _connection(self) -> http.client.HTTPConnection:
        if self.is_secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self.host, self.port, timeout=_TIMEOUT_S, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)


def _answer(path: str, status: int, data: bytes) -> Any:
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if status == http.HTTPStatus.OK and answer is not None:
        return answer
    if status in {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}:
        raise RefusedRequestError(f"{path}: not allowed; set {TOKEN_VARIABLE}, or say where the token is (--token env:NAME)")
    told = answer if isinstance(answer, dict) else {}
    raise RefusedRequestError(
        f"{path}: {told.get('error') or 'no answer that could be read'} (status {status})", told.get("code")
    )


def _token(where: str | None) -> Secret | None:
    """The token, from where it is kept: never from the command line itself, which every user of the machine can see."""
    if where is None:
        found = os.environ.get(TOKEN_VARIABLE)
        return Secret(found) if found else None
    kind, _, place = where.partition(":")
    if kind == "env" and place in os.environ:
        return Secret(os.environ[place])
    if kind == "env":
        raise ConfigError(f"--token: the environment has no variable {place!r}")
    if kind == "file":
        try:
            return Secret(Path(place).read_text(encoding="utf-8").rstrip("\r\n"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--token: {place} cannot be read: {type(error).__name__}") from None
    raise ConfigError("--token: write env:NAME or file:PATH; a token on the command line can be seen by everybody")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
