"""`Guard`: lets requests through to the routes, or refuses them; hides the details of errors behind it from clients."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import traceback
from base64 import b64encode
from dataclasses import dataclass
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.admin.access import Access, Tokens
from penstock.admin.answers import Json
from penstock.topology.svg import STYLE

_log = logging.getLogger(__name__)
_HOST = re.compile(rb"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_GRANTED = "penstock.access"
_LOGGED_CHARACTERS = 300

_DRAWINGS_STYLE = b64encode(hashlib.sha256(STYLE.encode()).digest())  # a drawing has its style inline

HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; style-src 'self' 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        b"object-src 'none'" % _DRAWINGS_STYLE,
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""The headers of every response."""


def granted(request: Request) -> Access:
    """Return what the caller may do."""
    access: Access = request.scope[_GRANTED]
    return access


def allowed_hosts(*names: str) -> frozenset[bytes]:
    """Return the host names that requests may use: these, and loopback's. This keeps out a foreign page even if its name
    resolves to this machine (DNS rebinding).
    """
    return frozenset(_bracketed(name.lower()).encode() for name in (*_LOOPBACK, *names))


@dataclass(frozen=True, slots=True)
class Guard:
    """Checks every request before the routes.

    `open_paths` need no token; paths that match `asking` only read although they use POST, so the read token is enough.
    """

    app: ASGIApp
    tokens: Tokens
    hosts: frozenset[bytes]
    open_paths: frozenset[str]
    asking: re.Pattern[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        answer = self.refusal(scope)
        if answer is None:
            if self._changes(scope):
                _log.info("%s %s, asked for by %s", scope["method"], _escaped(scope["path"]), _caller(scope))
            try:
                await self.app(scope, receive, send)
            except ClientDisconnect:
                return
            except HTTPException as error:
                answer = Json({"error": error.detail}, error.status_code)
            except Exception as error:  # noqa: BLE001 - clients must not see any error's details
                answer = Json({"error": "Internal error: see the log under this id.", "id": _logged(scope, error)}, 500)
        if answer is not None:
            await answer(scope, receive, send)

    def refusal(self, scope: Scope) -> Json | None:
        """Return the response to a request that is refused; None if it is let in."""
        host = authorization = content_type = b""
        hosts = 0
        for name, value in scope["headers"]:
            if name == b"host":
                host, hosts = value, hosts + 1
            elif name == b"authorization":
                authorization = value
            elif name == b"content-type":
                content_type = value
            elif name == b"origin":
                return _refused(HTTPStatus.FORBIDDEN, "Requests from other sites' pages are refused (Origin header).")
        if hosts != 1 or not self._is_mine(host.lower(), scope):
            return _refused(HTTPStatus.MISDIRECTED_REQUEST, "Unknown host name (Host header): add it to admin_hosts.")
        scope[_GRANTED] = access = self.tokens.granted(authorization)
        if access is Access.NOTHING and scope["path"] not in self.open_paths:
            answer = _refused(HTTPStatus.UNAUTHORIZED, "Missing or wrong token: send 'Authorization: Bearer <token>'.")
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        if self._changes(scope) and access is not Access.OPERATE:
            return _refused(HTTPStatus.FORBIDDEN, "The read token (admin_read_token) cannot change anything: use admin_token.")
        if scope["method"] == "POST" and content_type.partition(b";")[0].strip().lower() != b"application/json":
            return _refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body must be JSON: send 'Content-Type: application/json'.")
        return None

    def _changes(self, scope: Scope) -> bool:
        """Whether a request changes something."""
        return bool(scope["method"] == "POST") and not self.asking.fullmatch(scope["path"])

    def _is_mine(self, host: bytes, scope: Scope) -> bool:
        """Whether `Host` is a name of this server, or the address that the connection was made to."""
        match = _HOST.fullmatch(host)
        return match is not None and (match[1] in self.hosts or match[1] == _bracketed(scope["server"][0]).encode())


def _caller(scope: Scope) -> str:
    """Return the address that a request comes from: that of a proxy if there is one."""
    client = scope.get("client")
    return "an unknown address" if client is None else f"{_bracketed(client[0])}:{client[1]}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _refused(status: HTTPStatus, why: str) -> Json:
    return Json({"error": why}, status)


def _logged(scope: Scope, error: Exception) -> str:
    """Log an error under a new id, with everything that a client may have sent escaped; return the id."""
    number = secrets.token_hex(8)
    _log.error("request %s failed: %s %s: %s", number, scope["method"], _escaped(scope["path"]), _trace(error))
    return number


def _trace(error: BaseException) -> str:
    """Return the stacks of an error and its causes, outermost first, each with its message on one line."""
    parts = []
    cause: BaseException | None = error
    while cause is not None:
        parts.append(f"{type(cause).__name__}: {_escaped(str(cause))}\n{''.join(traceback.format_tb(cause.__traceback__))}")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return "caused by ".join(parts)


def _escaped(text: str) -> str:
    """Escape text to one line of ASCII: no line ends, terminal codes or changes of direction."""
    return ascii(text[:_LOGGED_CHARACTERS])
