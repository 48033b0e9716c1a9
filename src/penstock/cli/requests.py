"""Requests to the admin server of a running application. They exchange JSON, never show the token and follow no redirect."""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock.errors import BrokerError, ConfigError
from penstock.http_client import FAILURES, AnswerTooLargeError, HttpClient
from penstock.settings import Secret, resolved

TOKEN_VARIABLE = "PENSTOCK_ADMIN_TOKEN"  # noqa: S105 - only its name
_TIMEOUT_S = 30.0
_MOST_BYTES = 64 << 20
_CHECK = "Check that the application is running and that this is its admin_address."


class UnreachableError(BrokerError):
    """No admin server answers at the address; the message says what happens there."""

    code = "unreachable"


class RefusedRequestError(ConfigError):
    """The admin server refused the request; the message says why. `reason` is the server's error code."""

    code = "refused"

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AdminConnection:
    """The address of an admin server, and the token to send."""

    host: str
    port: int
    is_secure: bool
    token: Secret | None = None

    @classmethod
    def at(cls, address: str, token: str | None = None) -> AdminConnection:
        """Return the server at `http://host:port`; `token` says where to read the token, by default from the environment."""
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"} or parts.username:
            raise ConfigError(f"--admin: expected http://host:port or https://host:port, got {parts.scheme}://{parts.hostname}…")
        is_secure = parts.scheme == "https"
        found = _token(token)
        if found is not None and not is_secure and not _is_loopback(parts.hostname):
            raise ConfigError("--admin: a token is not sent to another machine unencrypted. Use https://.")
        return cls(parts.hostname, parts.port or (443 if is_secure else 80), is_secure, found)

    def get(self, path: str) -> Any:
        """Return what the server responds to a GET."""
        return self._request("GET", path, None)

    def post(self, path: str, body: object, timeout_s: float = _TIMEOUT_S) -> Any:
        """Return what the server responds to a POST."""
        return self._request("POST", path, json.dumps(body).encode(), timeout_s)

    def _request(self, method: str, path: str, body: bytes | None, timeout_s: float = _TIMEOUT_S) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token.reveal()}"
        url = f"{'https' if self.is_secure else 'http'}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}{path}"
        try:
            status, data = HttpClient(timeout_s, _MOST_BYTES).send(method, url, headers, body)
        except AnswerTooLargeError:
            raise RefusedRequestError(
                f"{path}: the response exceeds {_MOST_BYTES >> 20} MiB. Request fewer rows (--limit)."
            ) from None
        except ssl.SSLError as error:
            raise RefusedRequestError(
                f"{self.host}:{self.port} answers, but not as https:// asks ({error.reason or error}). "
                f"Use http://, or let this machine trust its certificate (SSL_CERT_FILE)."
            ) from None
        except FAILURES as error:
            raise UnreachableError(f"{self._what_happens(error, timeout_s)} {_CHECK}") from None
        return _answer(path, status, data)

    def _what_happens(self, error: Exception, timeout_s: float) -> str:
        """Say what there is instead of an answer: whoever accepts a connection is reached."""
        there = f"{self.host}:{self.port}"
        if isinstance(error, TimeoutError):
            return f"{there} has not answered within {timeout_s:g} s: the application is busy, or there is none."
        if isinstance(error, (http.client.HTTPException, ConnectionResetError, BrokenPipeError)):
            other = "is something else" if self.is_secure else "asks for https://"
            return f"{there} accepts connections, but sends no answer in HTTP: it is ending, or {other}."
        return f"No admin server responds at {there} ({type(error).__name__})."


def _answer(path: str, status: int, data: bytes) -> Any:
    try:
        answer = json.loads(data)
    except ValueError:
        answer = None
    if status == http.HTTPStatus.OK and answer is not None:
        return answer
    if status in {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}:
        raise RefusedRequestError(
            f"{path}: not allowed. Set {TOKEN_VARIABLE}, or name a variable with the token (--token env:NAME)."
        )
    error = answer if isinstance(answer, dict) else {}
    raise RefusedRequestError(f"{path}: {error.get('error') or 'the response is not JSON'} (status {status})", error.get("code"))


def _token(where: str | None) -> Secret | None:
    """Read the token from a variable or a file; never from the command line, which all users of the machine can see."""
    if where is None:
        found = os.environ.get(TOKEN_VARIABLE)
        return Secret(resolved(TOKEN_VARIABLE, found, os.environ)) if found else None
    if not where.startswith(("env:", "file:")):
        raise ConfigError("--token: write env:NAME or file:PATH. All users of this machine can see the command line.")
    return Secret(resolved("--token", where, os.environ))


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
